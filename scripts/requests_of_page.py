"""Prints what a page asked for: from the browser's network log, and, as files are not logged, from its elements.

usage: requests_of_page.py NET-LOG.json PAGE.html
"""

import html.parser
import json
import re
import sys

# what need not be fetched
INLINE = ("data:", "blob:", "#", "about:")


def logged(path):
    """The URLs in the browser's network log that the page asked for."""
    with open(path, encoding="utf-8") as file:
        log = json.load(file)
    started = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    for event in log["events"]:
        parameters = event.get("params", {})
        # requests of the browser itself, for its own updates, have no origin
        if event["type"] == started and parameters.get("initiator") != "not an origin":
            yield parameters.get("url", "")


class Elements(html.parser.HTMLParser):
    """Collects what elements load. Links that a reader may follow are no loads."""

    def __init__(self):
        super().__init__()
        self.urls = []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            value = value or ""
            if name in ("src", "data", "poster") or (name in ("href", "xlink:href") and tag != "a"):
                self.urls.append(value)
            elif name == "srcset":
                self.urls += [part.split()[0] for part in value.split(",") if part.split()]
            elif name == "style":
                self.handle_style(value)

    def handle_data(self, data):
        if self.lasttag == "style":
            self.handle_style(data)

    def handle_style(self, text):
        self.urls += re.findall(r"url\(\s*['\"]?([^'\")]*)", text)
        self.urls += re.findall(r"@import\s+['\"]([^'\"]*)", text)


elements = Elements()
with open(sys.argv[2], encoding="utf-8") as page:
    elements.feed(page.read())
for url in sorted({*logged(sys.argv[1]), *elements.urls}):
    if url and not url.startswith(INLINE):
        print(url)
