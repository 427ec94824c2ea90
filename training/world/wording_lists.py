"""Other wordings of drawn questions, as people put them, and what they put around them: those of training, and held-out
ones, most of which were written without a look at these."""

from collections.abc import Sequence

from training.world import words

# what people put around a question
AROUND = {
    "train": (
        "please tell me: {q}", "can you tell me, {q}", "I would like to know: {q}", "hello, {q}", "{q} please",
        "{q} thanks", "look at the picture: {q}", "in this image, {q}", "according to the page, {q}",
        "on this page, {q}", "please, {q}", "{q} thank you!", "I can't read it: {q}", "quick question: {q}",
        "based on the document, {q}", "could you look up {q}", "Question: {q}",
        "hey, {q}", "excuse me, {q}", "just wondering: {q}", "as far as you can tell, {q}", "{q} I appreciate it!",
        "{q} as soon as possible", "my question is: {q}", "here is my question: {q}", "have a look at this page. {q}",
        "see the attached picture. {q}", "user: {q}", "given this scan, {q}", "referring to the image: {q}",
        "sorry to bother you, {q}", "for my notes: {q}", "{q} (see the picture)", "let's see. {q}", "ok so {q}",
        "next question - {q}", "using the document, answer this: {q}", "could you help me? {q}",
    ),
    "held_out": (
        "one more thing: {q}", "from what you see here, {q}", "help me with this - {q}", "{q} cheers", "Q: {q}",
        "{q} (asap)", "going by this picture, {q}", "good morning! {q}",
    ),
}  # fmt: skip
# what benchmarks and people put behind a question, to say how to answer it
INSTRUCTIONS = {
    "train": (
        "Answer with a single word.", "Answer in one word.", "Answer briefly.", "Please answer with a word or number only.",
        "Reply with the value only.", "Answer the question using a single word or phrase.", "Only the answer, please.",
        "Give a short answer.",
        "Answer in as short a form as possible.", "Just the word.", "No explanation, please.",
        "Write down the answer and nothing else.", "One word will do.", "Your answer should be a word or a number.",
        "Do not write a sentence.", "Give the final answer directly.", "Be brief.", "Answer with the text on the page.",
    ),
    "held_out": (
        "Respond with one word or phrase.", "Keep it short.", "Please reply in as few words as you can.",
        "Just the answer, please.", "Reply with only the value or word.", "Keep it short: no explanation, just the answer.",
        "Don't write a full sentence, only give the answer itself.", "Short answer only.",
        "Please respond with nothing but the word or number asked for.", "no extra text pls, just the answer",
    ),
}  # fmt: skip

# by the wordings that the world draws, which never stand among these
WORLD: tuple[tuple[Sequence[str], dict[str, Sequence[str]]], ...] = (
    (words.EITHER_QUESTIONS, {
        "train": (
            "{first}? if it isn't there, {second}", "give the {first}, else the {second}",
            "the {first}, or the {second} if there is no {first}", "is there a {first}? if not, what is the {second}?",
            "what's the {first} or else the {second}?",
            "what is the {first}, or the {second} when there is none?", "read me the {first}, or if missing the {second}",
            "the {first} please, otherwise the {second}", "do you see a {first}? if you don't, read the {second}",
            "if the page has a {first} then that, if it doesn't the {second}",
            "{first}, or the {second} instead if there is none",
        ),
        "held_out": (
            "I need the {first}; failing that, the {second}", "{first} or {second}, whichever is there",
            "What is the {first}? If there isn't one, give me the {second} instead.",
            "Give the {first}, or the {second} if no {first} is shown.",
            "Please read out the {first}; failing that, the {second}.",
            "Check for {first} first. If the page doesn't have it, tell me the {second}.",
            "I'd like the {first}, but if it's not on the page then the {second} will do.",
            "whats the {first}, or if its missing the {second}",
            "Report the value for {first}. Should that label be absent, report {second}.",
            "Is there a {first} here? If so, what is it? If not, what's the {second}?",
        ),
    }),
    (words.TABLE_REVERSE_QUESTIONS, {
        "train": (
            "{kind} with {column} {value}?", "whose {column} is {value}?", "{column} is {value}: which {kind}?",
            "name the {kind} that has {value} as {column}", "the {kind} whose {column} is {value}",
            "for which {kind} is the {column} {value}?",
            "which of the rows has {value} for {column}?", "the {column} {value} is that of which {kind}?",
            "what {kind} has {value} in the column {column}?", "who or what has a {column} of {value}?",
            "I see a {column} of {value}: which {kind} is that?", "in which row is the {column} {value}?",
            "tell me which {kind} shows {value} under {column}", "look for {value} under {column}. which {kind}?",
            "what is the {kind} where {column} is {value}?",
        ),
        "held_out": (
            "a {column} of {value} belongs to which {kind}?", "find the {kind} with a {column} of {value}",
            "Which {kind} has {value} under {column}?", "Name the {kind} whose {column} is {value}.",
            "what {kind} has a {column} of {value}", "Find {value} in the {column} column. Which {kind} does it belong to?",
            "Could you tell me the {kind} with {value} listed as its {column}?",
            "The {column} is {value} for one {kind}. Which one?",
            "I'm looking for the {kind} that shows {value} for {column}; which is it?",
        ),
    }),
    (words.TABLE_QUESTIONS, {
        "train": (
            "{row} {column}", "{column} {row}?", "what {column} does {row} have?", "what is the {column} for {row}?",
            "{row}: what is the {column}?", "tell me the {column} of {row}", "the {column} in the row {row}",
            "how much {column} has {row}?", "which {column} stands at {row}?",
            "what is given for {row} under {column}?", "look at {row}: {column}?", "for {row}, the {column}?",
            "read the cell of {row} and {column}", "what does the table say about {row}, {column}?",
            "what number does {row} have for {column}?", "the {column} that {row} has", "the value of {column} for {row}",
            "can you read {row} in the column {column}?", "find {row} and read its {column}", "{row} - {column}",
        ),
        "held_out": (
            "what's {row}'s {column}?", "in the line of {row}, what is its {column}?", "{row} has which {column}?",
            "What's the {column} for {row}?", "In the table, which value is in the {row} row under {column}?",
            "Look up {row} and tell me its {column}.", "{row}, {column}: what does the table say?",
            "Please give me the entry where row {row} meets column {column}.", "how much is {column} for {row} in this table",
            "Under {column}, what is listed for {row}?", "Could you find the {column} figure that belongs to {row}?",
        ),
    }),
    (words.CHART_EXTREME_QUESTIONS, {
        "train": (
            "the {extreme} bar", "which bar is {extreme}?", "name the {extreme} bar", "what has the {extreme} bar?",
            "what is {extreme} in the chart?", "which one has the {extreme} value?",
            "tell me the {extreme} bar", "which label has the {extreme} bar?", "which of the bars is the {extreme}?",
            "find the bar that is {extreme}", "the {extreme} one", "what is the {extreme} bar called?",
            "which month or label is {extreme}?", "who has the {extreme} bar?", "{extreme} bar?",
            "what stands below the {extreme} bar?", "which bar would you call the {extreme}?",
        ),
        "held_out": (
            "whose bar is the {extreme}?", "in this chart, what's {extreme}?",
            "Name the bar with the {extreme} value.", "What has the {extreme} value in this chart?",
            "Which category comes out {extreme} on the graph?", "whats the {extreme} bar called",
            "Please give me the label of the {extreme} bar.", "Looking at the chart, which of the bars is {extreme}?",
            "Can you tell me which label goes with the {extreme} bar?",
        ),
    }),
    (words.CHART_QUESTIONS, {
        "train": (
            "{label}?", "how high is {label}?", "what does the chart say for {label}?", "the bar of {label}",
            "value for {label}", "how much is {label}?", "what number has {label}?", "{label} in the chart",
            "what value does {label} have?", "how tall is the bar for {label}?", "how much does the bar {label} show?",
            "the number above {label}", "what is {label} at?", "look at {label}: how much?", "read me the bar {label}",
            "what do we have for {label}?", "and {label}?", "what value is drawn for {label}?", "{label} =",
            "find {label} and give its value",
        ),
        "held_out": (
            "what does {label} come to?", "which number belongs to {label}?", "What value does the {label} bar have?",
            "How high is the bar for {label}?", "Read off the value of {label} from the chart.",
            "According to the graph, what is the figure for {label}?", "whats {label} at in this chart",
            "Please tell me the number shown for {label} in the bar chart.", "In this bar graph, {label} stands at what value?",
            "Could you look at the bar labelled {label} and give me its value?",
        ),
    }),
    (words.SIGN_QUESTIONS, {
        "train": (
            "what is written on the {colour} sign?", "the text of the {colour} sign", "{colour} sign?",
            "what's on the {colour} sign?", "which word is on the {colour} sign?",
            "what can you read on the {colour} board?",
            "what word is on the {colour} sign?", "tell me what is on the {colour} sign",
            "what does it say on the {colour} one?", "can you read the {colour} sign?", "the {colour} sign says",
            "the word on the sign in {colour}", "what is the {colour} sign telling us?", "find the {colour} sign and read it",
            "what is printed on the {colour} plate?",
        ),
        "held_out": (
            "the {colour} sign reads what?", "what word does the {colour} one show?",
            "Read the word on the {colour} sign.", "Which word is written on the {colour} sign?",
            "There's a {colour} sign in the picture. What's on it?", "whats written on the {colour} sign",
            "Could you please tell me the text of the {colour} sign?", "Tell me what the sign in {colour} reads.",
            "I can't make out the {colour} sign, what word is it?",
        ),
    }),
    (words.SHAPE_COLOUR_QUESTIONS, {
        "train": (
            "the colour of the {shape}", "what color is the {shape}?", "{shape} colour?",
            "in which colour is the {shape} drawn?", "tell me the color of the {shape}",
            "which color is the {shape}?", "what colour does the {shape} have?", "the {shape} - which colour?",
            "is the {shape} red, green, blue or what?", "name the colour of the {shape}", "I see a {shape}. what color?",
            "find the {shape} and say its colour", "what's the color of that {shape}?",
        ),
        "held_out": (
            "how is the {shape} coloured?", "the {shape} is what color?", "Which colour does the {shape} have?",
            "Tell me the colour of the {shape}.", "The {shape} in the picture is what color?",
            "Could you say which colour the {shape} is, please?", "Look at the {shape}. What is its color?",
            "what colour has the {shape} been painted", "Name the color used for the {shape}.",
        ),
    }),
    (words.COLOUR_SHAPE_QUESTIONS, {
        "train": (
            "what is the {colour} shape?", "name the {colour} thing", "the shape that is {colour}",
            "what has the colour {colour}?", "which figure is {colour}?",
            "which shape has the colour {colour}?", "what kind of shape is {colour}?", "what thing is {colour}?",
            "name the shape in {colour}", "the {colour} shape?", "find what is {colour}", "what is {colour} here?",
            "tell me which shape is {colour}", "which of the shapes is {colour}?",
        ),
        "held_out": (
            "the {colour} one is which shape?", "what's drawn in {colour}?",
            "Name the {colour} shape.", "What is the shape of the {colour} object?",
            "There is something {colour} in the image. What shape is it?",
            "Could you please tell me which shape is shown in {colour}?", "the {colour} thing, what shape is that",
            "Identify the shape that is coloured {colour}.",
        ),
    }),
    (words.COUNT_QUESTIONS, {
        "train": (
            "number of {shapes}", "how many {shapes} can you see?", "how many {shapes}?", "the count of {shapes}",
            "tell me how many {shapes} there are",
            "count all {shapes}", "how many {shapes} do we have?", "please count the {shapes} for me",
            "what is the number of {shapes}?", "how many of the shapes are {shapes}?", "are there any {shapes}, and how many?",
            "{shapes} count", "find all {shapes}: how many?", "how many {shapes} in total?", "give me the count for {shapes}",
        ),
        "held_out": (
            "how many {shapes} does it show?", "{shapes}: how many of them?",
            "Count the {shapes} in this picture.", "What's the number of {shapes} in the image?",
            "Could you tell me how many {shapes} you can see?", "how many {shapes} does the picture have",
            "Please give me the total number of {shapes} shown here.", "I want to know how many {shapes} appear in this image.",
            "Looking at the whole picture, how many {shapes} do you count?",
        ),
    }),
    (words.GIST_QUESTIONS, {
        "train": (
            "what is this?", "what type of page is this?", "is this a form, a table, a list, a chart or a scene?",
            "what do you see?", "describe the kind of page",
            "Describe this image.", "Describe the picture.", "describe the page in detail", "Describe what you see.",
            "Give a description of the image.", "What is shown in this image?", "What does this picture show?",
            "what's in this image?", "What's in the picture?", "What is this page about?", "what is the document about?",
            "Summarize this document.", "Give a summary of the page.", "summarise the page for me",
            "Write a caption for this image.", "Caption this picture.", "What kind of document is it?",
            "what type of image is this?", "Which type of document do we have here?", "What sort of picture is this?",
            "Explain this image.", "explain what is shown", "Tell me about this image.", "tell me what you see",
            "What can you see?", "What can be seen in the picture?", "what am I supposed to see here?",
            "Give me an overview of this page.", "What does the page look like?", "how would you describe this?",
            "In a few words, what is this?", "What are we looking at?", "classify this page", "Classify the document.",
            "What is going on in this image?", "what is happening here?",
            "What is the main content of this page?", "what's this all about?",
            "Please describe the scene.", "can you describe this picture for me?", "Name the type of this document.",
            "identify the kind of document", "What would you call a page like this?", "the kind of page", "type of document?",
            "What does this document contain?", "What is on this page?", "What is depicted here?", "kind of page",
            "Provide a brief description of the given image.", "What are the main contents of the picture?",
            "Write a detailed description of the given image.", "Is this a letter, a form or something else?",
            "which of these is it: form, table, chart, scene, list?", "what format is this page in?",
            "What have I got in front of me?", "Can you tell what this is?", "what do you make of this?",
            "Do you recognize what this is?", "What is the topic?", "Say in one word what this is.",
            "How is this page laid out?", "What is the layout of the document?", "what category is it?",
            "into which category does this fall?", "label this image", "Tell me the document type.",
            "What does the image represent?", "What can you tell me about it?", "so what is it?", "What does it show?",
            "the type of picture", "What stands out here?", "Please summarize.", "Sum it up.", "Describe it.",
            "Explain it to me.", "I need to file this page. What is it?", "Which word fits this page best?",
            "Is it a chart or a table?", "What are you looking at?", "Read this and tell me what it is.",
            "Describe the image in one word.", "What would be a good title for this?",
        ),
        "held_out": (
            "what sort of document is it?", "what am I looking at?", "What am I looking at here?",
            "Describe this image in a word or two.", "In general terms, what does this picture show?",
            "Can you tell me what sort of image this is?", "whats this a picture of",
            "Say what type of document or picture this is.", "Overall, what is in the image?",
            "How would you classify this page?", "Give me a one-word description of the picture.",
            "Could you identify the general kind of content shown here?", "Please summarise what this image is.",
            "If you had to label this picture with one word, what would it be?",
            "What type of thing has been put on this page?", "Tell me, broadly, what the picture contains.",
            "I can't see the image. What sort of thing is it?",
        ),
    }),
    (words.FIELD_QUESTIONS, {
        "train": (
            "{label}", "{label}?", "the {label}", "what's the {label}?", "show me the {label}", "find the {label}",
            "value of {label}", "tell me the {label}", "what is given as {label}?", "I need the {label}", "{label} =",
            "which value has {label}?", "what stands at {label}?", "could you give me the {label}?",
            "what kind of {label} is this?", "describe the {label}", "what {label} is shown in the image?",
            "what does the {label} say?", "which type of {label}?", "tell me about the {label}", "what {label} do you see?",
            "what do we have as {label}?", "read me the {label}", "what is printed next to {label}?",
            "what comes after {label}?", "look for {label}", "is there a {label}?", "I am looking for the {label}",
            "what's written for {label}?", "give me the {label}", "the value next to {label}",
            "do you see a {label}? what is it?", "{label}: ?", "can you find the {label}", "what about the {label}?",
            "how much is the {label}?", "the {label} on this one?", "which {label} is it?", "and the {label}?",
            "what is stated for {label}?", "copy the {label}",
            "locate the {label} and read it out", "go to the {label} and tell me its content",
            "where it says {label}, what follows?", "under {label}, what is given?",
            "the box called {label}: what is in it?", "the line that begins with {label}",
            "which number or word belongs to {label}?", "what was filled in as {label}?",
            "what has been entered as {label}?", "read what comes with the {label}", "get me the {label}",
            "fetch the {label}", "extract the {label}", "return the {label}", "transcribe the {label}", "list the {label}",
            "report the {label}", "state the {label}", "identify the {label}", "name the {label}", "specify the {label}",
            "print the {label}", "what would the {label} be?", "and what about the {label}, what is it?",
            "the {label}, what is it exactly?", "{label}: what does it say?", "{label}, please", "{label} value",
            "{label} of this one?", "can you make out the {label}?", "can you see the {label}?",
            "is the {label} given? what is it?", "how is the {label} stated?", "I can't make out the {label}, can you?",
            "I have to write down the {label}. what is it?", "we need to know the {label}",
            "it must have a {label} somewhere. which?", "there should be a {label} here. what is it?",
            "please find out what the {label} is", "please look at the {label} and copy what it says",
            "does it give the {label}?", "scan the page for the {label} and give what it says",
            "check what the {label} says", "what exactly stands after {label}?", "tell me what is filled in at {label}",
            "who or what is the {label}?", "when or how much is the {label}?", "i want the {label}", "need {label}",
            "my {label}?", "its {label}?",
        ),
        "held_out": (
            "what did they put for {label}?", "let me have the {label}", "{label} - what is it?", "check the {label} for me",
            "What does it say next to {label}?", "Could you read me the {label} from this page, please?",
            "Find the entry marked {label} and tell me its value.", "whats the {label} on here",
            "Which value has been filled in for {label}?", "I need the {label} shown on this document.",
            'Look for "{label}" and give me whatever is printed beside it.',
        ),
    }),
)  # fmt: skip
# for what stands in a row that another of its cells names
TABLE_KEYED = {
    "train": (
        "give me the {target} where {key} is {value}", "for {key} {value}, what is the {target}?",
        "the {target} in the row with {key} {value}", "if {key} is {value}, what is {target}?",
        "{key} {value} - {target}?", "tell me the {target} of {key} {value}",
    ),
    "held_out": ("{key}: {value}. {target}?", "which {target} goes with {key} {value}?"),
}  # fmt: skip
# for a value that stands once in the table, whatever the column
TABLE_ALONE = {
    "train": (
        "{target} of {value}?", "{target} for {value}", "what {target} does {value} have?",
        "what was the {target} of {value}?", "{value}: {target}?", "which {target} belongs to {value}?",
        "what {target} is given for {value}?", "look up {value} and read its {target}",
    ),
    "held_out": ("what's {value}'s {target}?", "what is listed under {target} for {value}?"),
}  # fmt: skip
# for where a text stands
FINDS = {
    "train": (
        "where on the page is {text}?", "show me {text}", "locate {text}", "is {text} there?", "point to {text}",
        "search for {text}", "where can I see {text}?",
    ),
    "held_out": ("in which place does {text} stand?", "I can't find {text}"),
}  # fmt: skip
