"""The landing page, until the books have one: says what this is and where everything stands."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpuledger</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto;
padding: 0 1rem; }}
h1 {{ margin-bottom: 0; }}
small {{ opacity: 0.7; }}
li {{ margin: 0.4rem 0; }}
</style>
</head>
<body>
<h1>gpuledger</h1>
<p><small>{version}</small></p>
<p>The account book of a GPU node.</p>
<ul>
{links}
</ul>
</body>
</html>
"""


def landing_page(version: str, links: Mapping[str, str]) -> str:
    """Write the page: a version, and links from each path to what is said of it."""
    items = "\n".join(
        f'<li><a href="{escape(path)}">{escape(path)}</a> {escape(text)}</li>'
        for path, text in links.items()
    )
    return _PAGE.format(version=escape(version), links=items)
