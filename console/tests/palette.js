// A PNG of a browser as one with 256 colours, a third as large: pictures of pages have few colours, and many steps between them in text.
import { deflateSync, inflateSync } from "node:zlib";

export function withPalette(png) {
  const { width, height, pixels } = decode(png);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const palette = [];
  // The most frequent colours that are not nearly the same as one before.
  for (const [color] of [...counts].sort((a, b) => b[1] - a[1])) {
    if (palette.length === 256) break;
    if (palette.every((other) => distance(color, other) > 60)) palette.push(color);
  }
  const nearest = new Map();
  const rows = Buffer.alloc((width + 1) * height);
  pixels.forEach((pixel, at) => {
    let index = nearest.get(pixel);
    if (index === undefined) {
      index = 0;
      palette.forEach((color, other) => {
        if (distance(pixel, color) < distance(pixel, palette[index])) index = other;
      });
      nearest.set(pixel, index);
    }
    rows[Math.floor(at / width) * (width + 1) + 1 + (at % width)] = index;
  });
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3], 8);
  const colors = Buffer.from(palette.flatMap((color) => [color >> 16, (color >> 8) & 255, color & 255]));
  return Buffer.concat([png.subarray(0, 8), chunk("IHDR", head), chunk("PLTE", colors), chunk("IDAT", deflateSync(rows, { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

function distance(a, b) {
  const [red, green, blue] = [(a >> 16) - (b >> 16), ((a >> 8) & 255) - ((b >> 8) & 255), (a & 255) - (b & 255)];
  return red * red + green * green + blue * blue;
}

function decode(png) {
  let [width, height, channels] = [0, 0, 0];
  const data = [];
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    const type = png.toString("latin1", at + 4, at + 8);
    const content = png.subarray(at + 8, at + 8 + length);
    if (type === "IHDR") [width, height, channels] = [content.readUInt32BE(0), content.readUInt32BE(4), content[9] === 6 ? 4 : 3];
    if (type === "IDAT") data.push(content);
    at += 12 + length;
  }
  const raw = inflateSync(Buffer.concat(data));
  const stride = width * channels;
  const bytes = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (stride + 1)];
    for (let x = 0; x < stride; x++) {
      const left = x >= channels ? bytes[y * stride + x - channels] : 0;
      const up = y > 0 ? bytes[(y - 1) * stride + x] : 0;
      const corner = x >= channels && y > 0 ? bytes[(y - 1) * stride + x - channels] : 0;
      const paeth = () => {
        const [a, b, c] = [Math.abs(up - corner), Math.abs(left - corner), Math.abs(left + up - 2 * corner)];
        return a <= b && a <= c ? left : b <= c ? up : corner;
      };
      const added = [0, left, up, (left + up) >> 1, filter === 4 ? paeth() : 0][filter];
      bytes[y * stride + x] = raw[y * (stride + 1) + 1 + x] + added;
    }
  }
  const pixels = new Uint32Array(width * height);
  for (let at = 0; at < pixels.length; at++) pixels[at] = (bytes[at * channels] << 16) | (bytes[at * channels + 1] << 8) | bytes[at * channels + 2];
  return { width, height, pixels };
}

const TABLE = Uint32Array.from({ length: 256 }, (_none, at) => {
  let value = at;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value >>> 0;
});

function chunk(type, content) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), content]);
  let crc = 0xffffffff;
  for (const byte of body) crc = TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(content.length);
  check.writeUInt32BE((crc ^ 0xffffffff) >>> 0);
  return Buffer.concat([length, body, check]);
}
