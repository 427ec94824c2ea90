"""Measuring what a token budget costs, beside what a user could do instead."""
