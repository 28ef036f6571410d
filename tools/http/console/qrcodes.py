"""A QR code (ISO/IEC 18004), as part of a page: an SVG element without styles, as the content security policy wants it,
so that the key of a second factor leaves by no request."""

import segno
from markupsafe import Markup


def qr_code(text: str, title: str) -> Markup:
    """The code, dark on light whatever the page's colours are, or nothing for a text that is too long for one."""
    try:
        made = segno.make(text, error="m", micro=False)
    except segno.DataOverflowError:
        return Markup("")
    drawn = made.svg_inline(border=4, light="#fff", dark="#000", omitsize=True, svgclass="qr", lineclass=None)
    return Markup("<figure role=\"img\" aria-label=\"{}\">{}</figure>").format(title, Markup(drawn))
