"""Pages of things that have several values each, such as mails, files, goods, bookings or games: what is shown of each, and how
people ask for one value of it by another."""

from dataclasses import dataclass

from training.data.document_values import Values

FREE = "free"  # a short text of a table


@dataclass(frozen=True)
class Kind:
    """What is shown of each thing: its fields, as (kind of the value, header), and the ways to ask.

    `asked` holds (answer's field, field that {k} names, wordings by a stroke). `alike` are kinds whose values don't tell which
    field they are of: they always stand below their headers.
    """

    fields: tuple[tuple[str, str], ...]
    asked: tuple[tuple[int, int, str], ...]
    alike: bool = False


KINDS = (
    Kind((("person", "From"), (FREE, "Subject"), ("when", "Date")), (
        (0, 1, "who sent {k}?|who wrote about {k}?|sender of {k}|{k}: who is it from?|from whom is the message {k}?"),
        (1, 0, "what did {k} write about?|subject of the mail from {k}?|what is the message from {k} about?|what does {k} want?"),
        (2, 0, "when did {k} write?|when was the message from {k} sent?|date of {k}'s mail"),
        (2, 1, "when did {k} come in?|when was {k} sent?|date of {k}"),
    )),
    Kind((("file", "Name"), ("size", "Size"), ("when", "Modified")), (
        (1, 0, "how large is {k}?|size of {k}?|how big is the file {k}?|what does {k} take on the disk?"),
        (2, 0, "when was {k} changed?|when was {k} last saved?|date of {k}?|how old is {k}?"),
        (0, 1, "which file has {k}?|what takes {k}?|which one is {k} large?"),
    )),
    Kind((("thing", "Product"), ("amount", "Price"), ("rating", "Rating")), (
        (1, 0, "how much is the {k}?|what does {k} cost?|price of {k}|how expensive is {k}?|{k} price?"),
        (2, 0, "what rating has the {k}?|how many stars has {k}?|how good is {k}?|how was the {k} rated?"),
        (0, 1, "what can be had for {k}?|what costs {k}?|which product is {k}?"),
        (0, 2, "which product is rated {k}?|what has {k}?"),
    )),
    Kind(((FREE, "Item"), ("number", "In stock"), ("amount", "Price"), ("code", "No.")), (
        (1, 0, "how many {k} are left?|stock of {k}?|how many of {k} do they have?|number of {k} in stock"),
        (2, 0, "how much is {k}?|price of {k}?|what does one pay for {k}?"),
        (3, 0, "which number has {k}?|article number of {k}?|code of {k}"),
        (0, 3, "what is {k}?|which item has the number {k}?|what is sold as {k}?"),
    ), alike=True),
    Kind((("short date", "Date"), (FREE, "Payee"), ("amount", "Amount")), (
        (2, 1, "how much went to {k}?|how much was paid to {k}?|amount for {k}?|what did {k} get?|how much did I spend at {k}?"),
        (0, 1, "when was {k} paid?|date of the payment to {k}?|when did the money go to {k}?"),
        (1, 2, "who got {k}?|what was {k} paid for?|where were {k} spent?|who was paid {k}?"),
        (1, 0, "who was paid on {k}?|what was bought on {k}?"),
    )),
    Kind((("person", "Name"), ("phone", "Phone"), ("email", "Email")), (
        (1, 0, "phone number of {k}?|how can I call {k}?|what number has {k}?|{k} phone|telephone of {k}?"),
        (2, 0, "where can I write to {k}?|e-mail address of {k}?|what is {k}'s email?|{k} mail"),
        (0, 1, "who has the number {k}?|whose number is {k}?"),
    )),
    Kind((("time", "Time"), ("place", "To"), ("small", "Platform"), ("travel", "Status")), (
        (0, 1, "when is the next one to {k}?|when does it leave for {k}?|departure to {k}?|{k} what time?"),
        (1, 0, "where does the {k} go?|destination at {k}?|where to at {k}?|which place does the {k} one serve?"),
        (2, 1, "from where does the one to {k} leave?|{k} platform?|which track for {k}?|where do I board for {k}?"),
        (3, 1, "is the one to {k} late?|status of {k}?|how is the one to {k} doing?|is {k} on time?"),
    )),
    Kind(((FREE, "Home"), ("score", "Score"), (FREE, "Away")), (
        (1, 0, "what was the result of {k}?|how did {k} play?|score of {k}?|how did the game of {k} end?"),
        (1, 2, "what was the result of {k}?|how did the game against {k} end?|score with {k}?"),
        (2, 0, "who did {k} play against?|opponent of {k}?|who met {k}?|against whom was {k}?"),
        (0, 2, "who played at home against {k}?|opponent of {k}?|who met {k}?"),
    )),
    Kind((("task", "Task"), ("first name", "Owner"), ("short date", "Due")), (
        (1, 0, "who does {k}?|who has to {k}?|who is in charge of {k}?|whose job is {k}?|{k} - who?"),
        (2, 0, "by when must {k} be done?|deadline of {k}?|when is {k} due?|until when is {k}?"),
        (0, 1, "what has {k} to do?|task of {k}?|what is {k} working on?|job of {k}?"),
        (0, 2, "what is due on {k}?|what has to be done by {k}?"),
    )),
    Kind(((FREE, "Title"), ("person", "Artist"), ("length", "Length")), (
        (1, 0, "who sings {k}?|who is {k} by?|artist of {k}?|who made {k}?|author of {k}?"),
        (0, 1, "what is by {k}?|song of {k}?|what did {k} make?"),
        (2, 0, "how long is {k}?|length of {k}?|how many minutes has {k}?|playing time of {k}"),
    )),
    Kind((("day", "Day"), ("weather", "Weather"), ("warm", "High"), ("cold", "Low")), (
        (1, 0, "how will the weather be on {k}?|what is it like on {k}?|{k} weather?|forecast for {k}?"),
        (2, 0, "how warm does it get on {k}?|highest temperature on {k}?|high on {k}?|maximum for {k}?"),
        (3, 0, "how cold does it get on {k}?|lowest temperature on {k}?|low on {k}?|minimum for {k}?"),
    ), alike=True),
    Kind((("symbol", "Symbol"), ("amount", "Price"), ("change", "Change")), (
        (1, 0, "what is {k} at?|price of {k}?|what does one {k} cost?|{k} quote?|value of {k}"),
        (2, 0, "how did {k} change?|how much did {k} move?|change of {k}?|is {k} up or down?"),
        (0, 2, "what changed by {k}?|which one moved {k}?"),
    )),
    Kind(((FREE, "Flat"), ("amount", "Rent"), ("small", "Rooms"), ("place", "Where")), (
        (1, 0, "what is the rent of {k}?|how much per month is {k}?|what does {k} cost?"),
        (2, 0, "how many rooms has {k}?|rooms of {k}?|how big is {k}?"),
        (3, 0, "where is {k}?|in which place is {k}?|location of {k}?"),
        (0, 3, "what is there in {k}?|which one is in {k}?"),
    ), alike=True),
    Kind((("small", "Rank"), ("person", "Player"), ("number", "Points")), (
        (2, 1, "how many points has {k}?|score of {k}?|points of {k}?|how much did {k} get?"),
        (0, 1, "at what place is {k}?|rank of {k}?|which position has {k}?|how did {k} finish?"),
        (1, 0, "who is number {k}?|who came in at {k}?|who is ranked {k}?"),
        (1, 2, "who has {k} points?|who got {k}?"),
    ), alike=True),
    Kind((("time", "Time"), ("event", "Lesson"), ("small", "Room"), ("person", "Teacher")), (
        (0, 1, "when is {k}?|{k} at what time?|when does {k} begin?|time of {k}"),
        (1, 0, "what is at {k}?|which lesson begins at {k}?|what is on at {k}?"),
        (2, 1, "in which room is {k}?|where is {k}?|room of {k}?|where do I go for {k}?"),
        (3, 1, "who gives {k}?|teacher of {k}?|who leads {k}?|{k} with whom?"),
    )),
    Kind((("first name", "User"), (FREE, "Comment"), ("small", "Likes")), (
        (1, 0, "what did {k} say?|what does {k} think?|comment by {k}?|what has {k} written?|answer of {k}"),
        (0, 1, "who said {k}?|who wrote {k}?|author of the comment {k}?"),
        (2, 0, "how many likes has {k}?|how many people like what {k} wrote?|likes of {k}"),
    )),
    Kind((("code", "Order"), ("short date", "Date"), ("amount", "Total"), ("word", "Status")), (
        (1, 0, "when was {k} ordered?|date of order {k}?|when was {k}?"),
        (2, 0, "how much was {k}?|total of order {k}?|what did {k} cost?"),
        (3, 0, "status of {k}?|what about order {k}?|how far is {k}?|is {k} done?"),
        (0, 2, "which order was {k}?|what order cost {k}?|order number for {k}"),
    )),
    Kind(((FREE, "Medicine"), ("in mg", "Dose"), ("often", "When")), (
        (1, 0, "how much {k} is to be taken?|dose of {k}?|how much of {k}?"),
        (2, 0, "how often is {k} taken?|when to take {k}?|how many times a day {k}?"),
        (0, 2, "what is taken {k}?|which medicine is for {k}?"),
    )),
    Kind((("small", "Qty"), ("thing", "Item"), ("amount", "Amount")), (
        (2, 1, "what was paid for the {k}?|amount for {k}?|how much is the {k}?|{k}?|cost of {k}"),
        (0, 1, "how many {k} were bought?|number of {k}?|how many {k}?|quantity of {k}?"),
        (1, 2, "what was {k}?|what cost {k}?|which item was {k}?"),
    )),
    Kind((("thing", "Ingredient"), ("quantity", "Amount")), (
        (1, 0, "how much {k} do I need?|how much {k} goes in?|amount of {k}?|{k}: how much?|how many {k}?"),
        (0, 1, "of what do I need {k}?|what is taken {k} of?"),
    )),
    Kind(((FREE, "Question"), ("percent", "Yes"), ("percent", "No")), (
        (1, 0, "how many said yes to {k}?|share of yes for {k}?|how many agree with {k}?"),
        (2, 0, "how many said no to {k}?|share of no for {k}?|how many are against {k}?"),
    ), alike=True),
    Kind(((FREE, "Hotel"), ("rating", "Stars"), ("amount", "Per night"), ("in km", "Distance")), (
        (2, 0, "how much is a night at {k}?|price of {k}?|what does {k} charge?|cost of staying at {k}?"),
        (1, 0, "how good is {k}?|stars of {k}?|rating of {k}?"),
        (3, 0, "how far is {k}?|distance to {k}?|how far away is {k}?"),
        (0, 2, "which hotel costs {k}?|where is a night {k}?"),
    )),
    Kind(((FREE, "Song"), ("number", "Plays")), (
        (1, 0, "how often was {k} played?|plays of {k}?|how many heard {k}?|{k}?"),
        (0, 1, "what was played {k} times?|which has {k}?"),
    )),
    Kind((("event", "Course"), ("grade", "Grade"), ("person", "Teacher")), (
        (1, 0, "what grade is there in {k}?|mark in {k}?|how good in {k}?|result in {k}?"),
        (2, 0, "who teaches {k}?|teacher in {k}?|who gave the mark in {k}?"),
        (0, 2, "what does {k} teach?|subject of {k}?"),
    )),
)  # fmt: skip


def make_records(values: Values, kind: Kind, count: int) -> tuple[list[tuple[str, ...]], list[int]]:
    """At most `count` records of a kind, no two with the same first value, and the fields that are shown, in their order."""
    random, every = values.random, [*range(len(kind.fields))]
    shown = every.copy()
    if random.random() < 0.3:
        shown.remove(random.choice(every))
        if not any({answer, key} <= {*shown} for answer, key, _ in kind.asked):
            shown = every
    if random.random() < 0.2:
        random.shuffle(shown)
    found: dict[str, tuple[str, ...]] = {}
    for _ in range(count):
        record = tuple(values.make(name) for name, _ in kind.fields)
        found.setdefault(record[0].lower(), record)
    return [*found.values()], shown
