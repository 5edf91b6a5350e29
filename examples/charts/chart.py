"""Draws the second column of a CSV file as chart.svg and chart.png."""

import csv
import struct
import sys
import zlib

WIDTH, HEIGHT, MARGIN = 480, 240, 24
BACKGROUND, BAR = (255, 255, 255), (0, 112, 243)


def bars(values):
    """Yields x, y, width and height of each bar."""
    slot = (WIDTH - 2 * MARGIN) / len(values)
    for i, value in enumerate(values):
        height = (HEIGHT - 2 * MARGIN) * value / max(values)
        yield round(MARGIN + i * slot), round(HEIGHT - MARGIN - height), round(slot * 0.8), round(height)


def svg(labels, values):
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">']
    for label, value, (x, y, w, h) in zip(labels, values, bars(values)):
        parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="rgb{BAR}"><title>{value}</title></rect>')
        parts.append(f'<text x="{x}" y="{HEIGHT - 8}">{label}</text>')
    return "\n".join(parts + ["</svg>\n"])


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(values):
    rows = [bytearray(bytes(BACKGROUND) * WIDTH) for _ in range(HEIGHT)]
    for x, y, w, h in bars(values):
        for row in rows[y : y + h]:
            row[3 * x : 3 * (x + w)] = bytes(BAR) * w
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def main():
    with open(sys.argv[1], newline="") as f:
        rows = list(csv.reader(f))[1:]
    labels, values = [row[0] for row in rows], [float(row[1]) for row in rows]
    with open("chart.svg", "w") as f:
        f.write(svg(labels, values))
    with open("chart.png", "wb") as f:
        f.write(png(values))
    print(f"Drew {len(values)} bars, {sum(values):.0f} in all")


main()
