"""The words of everyday pages: what labels, lists and sentences say, what may stand for them, and how people ask for it."""

# kind of a value -> what asks for it; {l} is its label, or another word for that
ASKING = {
    "amount": (
        "how much is the {l}?", "what is the {l}?", "{l}?", "how much {l} was charged?", "what does it say for {l}?",
        "what amount is given for {l}?", "what did the {l} come to?", "tell me the {l}",
    ),
    "time": (
        "when is the {l}?", "what time is the {l}?", "{l} time?", "at what time is {l}?", "what is the {l}?",
        "can you tell me when the {l} is?",
    ),
    "date": ("when is the {l}?", "what is the {l}?", "{l}?", "which date is given for {l}?", "on which day is the {l}?"),
    "person": ("who is the {l}?", "what is the name of the {l}?", "{l}?", "name of the {l}", "who is named as {l}?"),
    "place": ("where is the {l}?", "what is the {l}?", "which {l} is given?", "{l}?", "what {l} does it say?"),
    "code": ("what is the {l}?", "{l}?", "which {l} is it?", "give me the {l}", "what {l} is shown?", "please read the {l}"),
    "number": ("how many {l}?", "what is the number of {l}?", "{l}?", "how many {l} are there?", "what does {l} say?"),
    "measure": ("what is the {l}?", "{l}?", "how much {l}?", "what value has {l}?", "which {l} is given?"),
    "state": ("is {l} on or off?", "is {l} enabled?", "what is {l} set to?", "{l}?", "what is the state of {l}?"),
    "word": ("what is the {l}?", "which {l}?", "{l}?", "what {l} is it?", "what kind of {l}?"),
}  # fmt: skip

# kind of a value -> (label, other words for it, or whole questions, by a stroke)
LABELS = {
    "amount": (
        ("Salary", "pay per month|what does the job pay?"), ("Fee", "what has to be paid to take part?"), ("Savings",
         "money put aside|how much was saved?"),
        ("Budget", "money at hand|how much can be spent?"), ("Price", "cost|what does it cost?"), ("Profit",
         "gain|how much was earned?"),
        ("Revenue", "turnover|how much came in?"), ("Expenses", "spending|how much went out?"), ("Loan", "credit|borrowed money"),
        ("Total", "sum|amount to pay|what has to be paid in all?"), ("Subtotal", "sum before tax"), ("Tax", "VAT|taxes"),
        ("Tip", "gratuity|service charge"), ("Discount", "reduction|how much was taken off?"), ("Delivery",
         "shipping cost|delivery fee"),
        ("Deposit", "down payment"), ("Rent", "monthly rent|cost of the flat"), ("Insurance", "cost of the insurance"),
        ("Balance", "what is left on the account?|remaining money"), ("Gross pay", "wage before deductions"),
        ("Net pay", "what is paid out?|take-home pay"), ("Change", "money given back"), ("Cash", "cash given"),
        ("Refund", "money back"), ("Amount due", "outstanding amount|what is owed?"), ("Fine", "penalty"), ("Bonus",
         "extra pay"),
    ),
    "time": (
        ("Sunrise", "when does the sun come up?"), ("Sunset", "when does it get dark?"), ("Next bus", "when does the bus come?"),
        ("Appointment", "when must one be there?"), ("Lunch", "when does one eat?|midday break"),
        ("Check-in", "when can guests arrive?"), ("Check-out", "when must the room be left?|leaving"), ("Departure",
         "when does it leave?"),
        ("Arrival", "when does it get there?"), ("Opens", "opening|when does it open?"), ("Closes",
         "closing|until when is it open?"),
        ("Boarding", "when do passengers get on?"), ("Doors", "admission"), ("Start", "beginning|when does it begin?"),
        ("End", "finish|when is it over?"), ("Last entry", "until when can one go in?"), ("Pickup", "collection"),
    ),
    "date": (
        ("Last seen", "when was it seen last?"), ("Moved in", "since when does the tenant live there?"), ("Graduated",
         "end of studies"), ("Renewal", "when is it renewed?|next payment"), ("Published", "when did it come out?|release date"),
        ("Date of birth", "birthday|when was the person born?"), ("Issued", "date of issue"), ("Expires",
         "expiry|until when is it valid?"),
        ("Due date", "deadline|by when must it be paid?"), ("Order date", "when was it ordered?"), ("Joined", "date of joining"),
        ("Best before", "until when can it be eaten?"), ("Delivered", "delivery day|when did it come?"), ("Next visit",
         "next appointment"),
        ("Date", "day of this page|when was this?"), ("Starts on", "first day"), ("Signed", "day of the signature"),
    ),
    "person": (
        ("Owner", "whose is it?|who owns it?"), ("Student", "pupil"), ("Winner", "first|who won?"), ("Tenant",
         "who lives there?"), ("Seller", "vendor|who sells it?"),
        ("Director", "head|who leads it?"), ("Speaker", "who gives the talk?"), ("Architect", "who built it?|planner"),
        ("Captain", "who leads the team?|skipper"), ("Mother", "parent"), ("Nurse", "who takes care?"),
        ("Name", "whose page is this?"), ("Customer", "buyer|who bought it?"), ("Patient", "sick person"), ("Guest",
         "visitor"),
        ("Manager", "boss|who is in charge?"), ("Doctor", "physician"), ("Author", "writer|who wrote it?"), ("From",
         "sender|who sent it?"),
        ("To", "recipient|who is it for?"), ("Contact", "contact person|whom can one ask?"), ("Driver", "who drives?"),
        ("Cashier", "who served the customer?"), ("Teacher", "who gives the lessons?"), ("Coach", "trainer"), ("Host",
         "organiser"),
    ),
    "place": (
        ("Location", "where is it?|site"), ("Hotel", "where do they stay?"), ("School", "where does the pupil learn?"),
        ("From city", "where does it start?|starting point"), ("Bank", "where is the account?"), ("Nationality", "citizenship"),
        ("City", "town|where does the person live?"), ("Country", "nation"), ("Destination", "where does it go?"), ("Venue",
         "where does it take place?"),
        ("Birthplace", "place of birth|where was the person born?"), ("Origin", "where does it come from?"), ("Address",
         "street|where does one find it?"),
        ("Warehouse", "where is it stored?"), ("Ship to", "delivery address"), ("Office", "where does the person work?"),
        ("Station", "stop"),
    ),
    "code": (
        ("Licence key", "activation code"), ("Passport", "passport number"), ("Policy", "number of the insurance"), ("Fax", ""),
        ("Emergency", "whom to call in need?|emergency number"), ("Coupon", "promo code|discount code"), ("Shelf",
         "where on the shelves?"),
        ("Reference", "reference number|file number"), ("Username", "user name|login"), ("IBAN", "bank account"), ("Size EU",
         "size of the shoes"),
        ("Order no.", "order number|number of the order"), ("Invoice", "invoice number"), ("Booking",
         "booking code|reservation number"),
        ("Tracking", "tracking number"), ("Seat", "where does the passenger sit?|place to sit"), ("Gate",
         "where does boarding take place?"),
        ("Room", "room number|which room?"), ("Flight", "flight number"), ("Account", "account number"), ("Member ID",
         "membership number"),
        ("License", "number plate"), ("Model", "model number"), ("Serial", "serial number"), ("Version",
         "release|which version runs?"),
        ("Error", "error code|code of the fault"), ("Password", "passcode|secret word"), ("Phone",
         "telephone number|what number can I call?"),
        ("Mobile", "cell phone number"), ("Zip", "postal code|postcode"), ("Platform", "track|where does the train stop?"),
        ("Email", "e-mail address|where can I write to?"),
        ("Website", "web address|URL"), ("Table", "table number"), ("Locker", "number of the locker"), ("Wi-Fi key",
         "key of the network"),
    ),
    "number": (
        ("Goals", "how often did they score?"), ("Children", "kids|how many kids are there?"), ("Floors",
         "storeys|how many storeys has it?"), ("Views", "how often was it seen?"),
        ("Members", "how many belong to it?"), ("Tickets sold", "sold tickets"), ("Unread", "new messages|how many are not read?"),
        ("Likes", "how many people like it?"), ("Absent", "how many are missing?"), ("Inhabitants",
         "how many live there?"),
        ("Guests", "people|how many come?"), ("Nights", "how long is the stay?"), ("Pages", "how long is the document?"),
        ("Visitors", "people who came"),
        ("Orders", "purchases"), ("Items", "things bought"), ("Points", "score"), ("Users", "people using it"), ("Downloads",
         "how often was it loaded?"),
        ("Messages", "mails"), ("Steps", "how far was walked?"), ("Servings", "portions|how many people does it feed?"),
        ("Seats", "places"),
        ("Bedrooms", "rooms to sleep in"), ("Followers", "fans"), ("Employees", "staff|how many work there?"), ("Votes",
         "ballots"), ("Errors", "mistakes"),
        ("Copies", "prints"), ("Stock", "how many are left?"), ("Age", "how old?"),
    ),
    "measure": (
        ("Pressure", ""), ("Rain", "rainfall|how much rain fell?"), ("Pulse", "heart rate|beats per minute"), ("Power",
         "how strong is it?|watts"), ("Capacity", "how much fits in?"), ("Depth", "how deep is it?"), ("Data used",
         "used data|how much data was used?"), ("Interest", "interest rate"), ("Attendance", "how many were there in percent?"),
        ("Weight", "how heavy is it?"), ("Height", "how tall is it?"), ("Length", "how long is it?"), ("Width",
         "how wide is it?"),
        ("Speed", "how fast is it?"), ("Temperature", "how warm is it?"), ("Distance", "how far is it?"), ("Fat",
         "fat content"),
        ("Sugar", "how much sugar is in it?"), ("Protein", "protein content"), ("Energy", "calories"), ("Salt", "sodium"),
        ("Storage", "memory|disk space"),
        ("Battery", "charge"), ("Humidity", "moisture"), ("Duration", "how long does it take?"), ("Size", "how large is it?"),
        ("Growth", "increase"),
        ("Share", "percentage"), ("Area", "floor space"),
    ),
    "state": (
        ("Wi-Fi", "wireless"), ("Bluetooth", ""), ("Airplane mode", "flight mode"), ("Dark mode", "dark theme"), ("Location",
         "GPS"), ("Alarm", ""),
        ("Auto update", "automatic updates"), ("Night light", ""), ("Hotspot", ""), ("Battery saver", "power saving"),
        ("Vibration", "buzzing"),
        ("Sync", "synchronisation"), ("Breakfast", ""), ("Newsletter", ""), ("Insurance cover", ""), ("Notifications",
         "alerts"), ("Camera", ""), ("Roaming", ""),
    ),
    "word": (
        ("Allergies", "what can't the person eat?"), ("Sport", "what is played?"), ("Mood", "how does it feel?"), ("Priority",
         "how urgent is it?|urgency"), ("Result", "outcome|how did it end?"), ("Theme", "what is discussed?"),
        ("Weather", "how is the sky?"), ("Hobby", "what does the person like to do?"), ("Vehicle", "car|kind of car"),
        ("Pet", "animal"),
        ("Status", "state|how is it going?"), ("Job", "profession|what does the person do?"), ("Colour", "shade"), ("Material",
         "what is it made of?"),
        ("Company", "firm|employer"), ("Subject", "topic|what is it about?"), ("Brand", "maker"), ("Diet", "food"), ("Level",
         "grade"),
        ("Payment", "method of payment|how was it paid?"), ("Language", "tongue"), ("Genre", "sort"), ("Department",
         "section|team"), ("Plan", "tariff"), ("Class", "category"),
    ),
}  # fmt: skip

# labels whose values are of another kind than what asks for them
OTHER_VALUES = {
    "Phone": "phone", "Mobile": "phone", "Fax": "phone", "Emergency": "phone", "Email": "email", "Website": "website", "Zip": "zip",
    "IBAN": "iban", "Size EU": "shoes", "Country": "country", "Nationality": "country", "Age": "small", "Growth": "percent",
    "Share": "percent", "Attendance": "percent", "Humidity": "percent", "Battery": "percent", "Interest": "percent",
    "Weight": "in kg", "Height": "in cm", "Length": "in m", "Width": "in cm", "Size": "in cm", "Speed": "in km/h",
    "Temperature": "in °C", "Distance": "in km", "Fat": "in g", "Sugar": "in g", "Protein": "in g", "Energy": "in kcal",
    "Salt": "in g", "Storage": "in GB", "Duration": "in min", "Area": "in m²", "Pressure": "in bar", "Rain": "in mm",
    "Pulse": "in bpm", "Power": "in W", "Capacity": "in l", "Depth": "in m", "Data used": "in GB",
}  # fmt: skip

# headers of records that a question can name: "what is the price of ..."
NOUNS = {
    "Subject", "Date", "Size", "Price", "Rating", "Amount", "Phone", "Email", "Platform", "Status", "Score", "Owner", "Artist",
    "Length", "Weather", "High", "Low", "Change", "Rent", "Points", "Rank", "Room", "Teacher", "Comment", "Total", "Dose",
    "Grade", "Stars", "Distance", "Payee", "Task", "Lesson",
}  # fmt: skip
# labels that are no nouns, or of no number: what else is asked for them
ASKING_PLAIN = ("{l}?", "what does it say for {l}?", "what stands beside {l}?", "what is given for {l}?")
PLAIN_LABELS = {
    "Opens", "Closes", "Last seen", "Moved in", "Graduated", "Published", "Issued", "Expires", "Joined", "Best before", "Delivered",
    "Starts on", "Signed", "From", "To", "Age", "Stock", "Unread", "Absent", "Tickets sold", "Savings", "Expenses", "Nationality",
    "From city", "Ship to", "Change", "Cash", "Data used", "Interest", "Attendance",
}  # fmt: skip


def asking(kind: str, label: str) -> tuple[str, ...]:
    """The wordings that ask for the value of a label of a kind."""
    return ASKING_PLAIN if label in PLAIN_LABELS else ASKING[kind]


TITLES = (
    "Receipt", "Invoice", "Menu", "Details", "Booking", "Overview", "Settings", "My account", "Welcome", "Order", "Summary",
    "Profile",
    "Today", "Report", "Price list", "Programme", "Statistics", "Information", "Contact", "Results", "Timetable", "Notice",
)  # fmt: skip
# what asks for the text at the top of a page
ASKING_TITLES = {
    "page": ("what is the title?", "title of the page?", "what is written at the top?", "what is this page called?"),
    "firm": ("which firm is this from?", "name of the company?", "what is the shop called?", "who made this page?",
             "which business is it?", "name of the shop at the top"),
    "place": ("which place is this about?", "what place stands at the top?", "title?", "where is this?"),
}  # fmt: skip
FIRST_NAMES = (
    "Anna", "Marco", "Linh", "David", "Fatima", "Pavel", "Rosa", "Kenji", "Amara", "Louis", "Greta", "Ibrahim", "Sofia",
    "Neil", "Chloe", "Diego", "Hana",
    "Oscar", "Maya", "Felix", "Irene", "Tariq", "Judith", "Bruno",
)  # fmt: skip
LAST_NAMES = (
    "Keller", "Moreau", "Singh", "Nguyen", "Lopez", "Ivanov", "Okafor", "Smith", "Jensen", "Rossi", "Kim", "Dubois", "Costa",
    "Walker", "Yilmaz", "Horvat",
    "Lund", "Baker", "Sato", "Weber", "Murphy", "Silva", "Cohen", "Park",
)  # fmt: skip
PLACES = (
    "Berlin", "Boston", "Cairo", "Delhi", "Geneva", "Hanoi", "Kyoto", "Lagos", "Leeds", "Lima", "Lille", "Nairobi", "Naples",
    "Osaka", "Paris", "Perth",
    "Quito", "Riga", "Rome", "Sofia", "Tokyo", "Tunis", "Utrecht", "York", "Mill Lane", "Park Road", "Hall B", "Main Street",
    "Garden Court", "Pier 4",
)  # fmt: skip
THINGS = (
    "Apple pie", "Mineral water", "Black tea", "Hot chocolate", "Ham toast", "Fried rice", "Garlic bread", "Ice cream",
    "Pizza", "Noodles", "Fruit salad",
    "Milk", "Butter", "Eggs", "Cheese", "Honey", "Soap", "Towel", "Pencil", "Printer", "Laptop", "Tablet", "Camera",
    "Bicycle", "Tent", "Shoes", "Jacket",
    "Scarf", "Candle", "Mirror", "Sofa", "Bed frame", "Carpet", "Hammer", "Ladder", "Paint", "Battery", "Toothpaste",
    "Shampoo", "Novel", "Map", "Ticket",
)  # fmt: skip
EVENTS = (
    "Breakfast", "Opening talk", "Workshop", "Concert", "Football", "Swimming", "Maths", "History", "Art class", "Interview",
    "Lunch break", "Guided tour",
    "Film night", "Dinner", "Choir", "Training", "Exam", "Weekly call", "Flea market", "Dance course", "Ferry", "News",
    "Quiz show", "Cartoon",
)  # fmt: skip
TASKS = (
    "Buy paper", "Call the bank", "Clean the car", "Fix the door", "Order chairs", "Paint the wall", "Plan the party",
    "Print the list", "Send letters", "Test the app", "Update the site", "Water plants", "Write the report", "Book a room",
)  # fmt: skip
SYMBOLS = (
    "ABX",
    "CRT",
    "DLN",
    "EUR/USD",
    "FXI",
    "GLD",
    "HNK",
    "JPY",
    "KPR",
    "MTL",
    "OIL",
    "QTM",
    "RVN",
    "SLV",
    "TKO",
    "VGT",
)
COUNTRIES = ("Austria", "Brazil", "Canada", "Chile", "Egypt", "Finland", "Ghana", "India", "Japan", "Kenya", "Mexico", "Norway",
             "Peru", "Poland", "Spain", "Turkey", "Vietnam")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
STATES = (("On", "Off"), ("on", "off"), ("ON", "OFF"), ("Yes", "No"), ("Enabled", "Disabled"), ("Active", "Inactive"))
WORDS = (
    "shipped", "pending", "Oak wood", "Cotton", "Steel", "Visa card", "PayPal", "Silver", "Navy blue", "Vegan", "Premium",
    "Economy", "Plumber", "Editor",
    "Designer", "Sales", "Finance", "Research", "Northline", "Brightway", "Delta Foods", "Koala Tech", "Danish", "Jazz",
    "Comedy", "Advanced", "Open", "Lost",
)  # fmt: skip
FILLERS = (
    "Thank you for your visit.", "Please keep this page.", "All data without warranty.", "See you soon!",
    "The weather was fine.", "More on the next page.",
    "Terms apply.", "We hope that you are well.", "It was a long day.", "Questions? Just ask us.",
    "Doors close early on holidays.",
)  # fmt: skip
