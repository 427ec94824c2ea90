"""Try it: one picture, one question, all tokens and a few."""
