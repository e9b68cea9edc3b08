/**
 * The frames of RFC 6455 as a client reads and writes them. Node only: it works on Buffers.
 *
 * Owns: which bytes are valid frames from a server, and the bytes of the client's frames. Must never: do I/O, or hold
 * more bytes than a message may have, even if the message arrives in tiny pieces.
 */

export const TEXT = 0x1;
export const CLOSE = 0x8;
export const PING = 0x9;
export const PONG = 0xa;
const CONTINUATION = 0x0;
const BINARY = 0x2;

export const PROTOCOL_VIOLATION = 1002;
export const NOT_UTF8 = 1007;
export const TOO_LARGE = 1009;

/** Maximum size of the head of a server's frame: two bytes, and eight bytes of length. */
const HEAD_BYTES_MAX = 10;

/** Maximum size of a control frame's payload (RFC 6455 section 5.5). */
const CONTROL_BYTES_MAX = 125;

/** Size of a message's first buffer, in bytes. It doubles as more bytes arrive, regardless of the announced length. */
const FIRST_BYTES = 4096;

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The server broke the rules; `closeCode` says how. */
export class Violation extends Error {
  /**
   * @param {number} closeCode
   * @param {string} message
   */
  constructor(closeCode, message) {
    super(message);
    this.closeCode = closeCode;
  }
}

/**
 * Return a whole masked frame.
 * @param {number} opcode
 * @param {string | Buffer} payload A string is written as UTF-8.
 * @param {Buffer} mask Four bytes that the payload's author cannot foresee (RFC 6455 section 5.3).
 * @returns {Buffer}
 */
export function frame(opcode, payload, mask) {
  const size = typeof payload === "string" ? Buffer.byteLength(payload) : payload.length;
  const extended = size < 126 ? 0 : size < 65536 ? 2 : 8;
  const start = 2 + extended + 4;
  const bytes = Buffer.allocUnsafe(start + size);
  bytes[0] = 0x80 | opcode;
  bytes[1] = 0x80 | (extended === 0 ? size : extended === 2 ? 126 : 127);
  if (extended === 2) bytes.writeUInt16BE(size, 2);
  else if (extended === 8) bytes.writeBigUInt64BE(BigInt(size), 2);
  mask.copy(bytes, start - 4, 0, 4);
  if (typeof payload === "string") bytes.write(payload, start);
  else payload.copy(bytes, start);
  for (let at = 0; at < size; at++) bytes[start + at] ^= mask[at & 3];
  return bytes;
}

/**
 * Return the payload of a close frame.
 * @param {number} code
 * @param {string} reason 123 bytes at most.
 * @returns {Buffer}
 */
export function closePayload(code, reason) {
  const bytes = Buffer.allocUnsafe(2 + Buffer.byteLength(reason));
  bytes.writeUInt16BE(code, 0);
  bytes.write(reason, 2);
  return bytes;
}

/** Collects bytes that arrive in pieces in one buffer. */
class Growing {
  /** @type {Buffer} */
  #bytes = Buffer.alloc(0);
  size = 0;

  /** @param {Buffer} piece */
  add(piece) {
    const size = this.size + piece.length;
    if (size > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(size, this.#bytes.length * 2, FIRST_BYTES));
      this.#bytes.copy(larger, 0, 0, this.size);
      this.#bytes = larger;
    }
    piece.copy(this.#bytes, this.size);
    this.size = size;
  }

  take() {
    const taken = this.#bytes.subarray(0, this.size);
    this.#bytes = Buffer.alloc(0);
    this.size = 0;
    return taken;
  }
}

/**
 * Functions that are called for a server's frames.
 * @typedef {object} FrameHandlers
 * @property {(text: string) => void} message A whole text message arrived.
 * @property {(payload: Buffer) => void} ping
 * @property {() => void} pong
 * @property {(code: number | null, reason: string) => void} close A close frame arrived. No other frame follows.
 */

/** Reads a server's frames. */
export class FrameReader {
  #messageBytesMax;
  #handlers;
  #head = Buffer.alloc(HEAD_BYTES_MAX);
  #headSize = 0;
  #headNeeded = 2;
  #inPayload = false;
  #opcode = 0;
  #fin = false;
  #left = 0; // bytes of the frame's payload still missing
  #control = new Growing();
  #message = new Growing();
  #inMessage = false; // fragments have arrived, but not the last one
  #over = false;

  /**
   * @param {number} messageBytesMax
   * @param {FrameHandlers} handlers
   */
  constructor(messageBytesMax, handlers) {
    this.#messageBytesMax = messageBytesMax;
    this.#handlers = handlers;
  }

  /**
   * Handle a chunk from the connection, which can hold many frames, or a part of one frame. Throws a `Violation`.
   * @param {Buffer} chunk
   */
  push(chunk) {
    let at = 0;
    while (!this.#over && at < chunk.length) {
      if (!this.#inPayload) {
        this.#head[this.#headSize++] = chunk[at++];
        if (this.#headSize === this.#headNeeded) this.#readHead();
      } else {
        const piece = chunk.subarray(at, at + this.#left);
        at += piece.length;
        this.#left -= piece.length;
        this.#readPayload(piece);
      }
    }
  }

  /** Ignore everything that arrives from now on. */
  stop() {
    this.#over = true;
  }

  #readHead() {
    const [first, second] = this.#head;
    if (this.#headSize === 2) {
      this.#fin = (first & 0x80) !== 0;
      this.#opcode = first & 0x0f;
      this.#checkHead(first, second);
      const short = second & 0x7f;
      if (short >= 126) {
        this.#headNeeded = short === 126 ? 4 : 10;
        return;
      }
      this.#left = short;
    } else if (this.#headSize === 4) {
      this.#left = this.#head.readUInt16BE(2);
    } else {
      // Not exact beyond 2^53, which is beyond every limit anyway.
      this.#left = Number(this.#head.readBigUInt64BE(2));
    }
    if (this.#opcode < CLOSE && this.#message.size + this.#left > this.#messageBytesMax) {
      throw new Violation(TOO_LARGE, `a message of more than ${this.#messageBytesMax} bytes`);
    }
    this.#headSize = 0;
    this.#headNeeded = 2;
    this.#inPayload = true;
    if (this.#left === 0) this.#readPayload(this.#head.subarray(0, 0));
  }

  /**
   * @param {number} first
   * @param {number} second
   */
  #checkHead(first, second) {
    if (first & 0x70) throw new Violation(PROTOCOL_VIOLATION, "a reserved bit is set");
    if (second & 0x80) throw new Violation(PROTOCOL_VIOLATION, "a masked frame from a server");
    switch (this.#opcode) {
      case CLOSE:
      case PING:
      case PONG:
        if (!this.#fin) throw new Violation(PROTOCOL_VIOLATION, "a fragmented control frame");
        if ((second & 0x7f) > CONTROL_BYTES_MAX) throw new Violation(PROTOCOL_VIOLATION, "an oversized control frame");
        break;
      case TEXT:
      case BINARY:
        if (this.#inMessage) throw new Violation(PROTOCOL_VIOLATION, "a message within a message");
        // An endpoint sends text only (SPEC section 1.1), so binary frames need no code.
        if (this.#opcode === BINARY) throw new Violation(PROTOCOL_VIOLATION, "a binary message");
        break;
      case CONTINUATION:
        if (!this.#inMessage) throw new Violation(PROTOCOL_VIOLATION, "a continuation frame outside a message");
        break;
      default:
        throw new Violation(PROTOCOL_VIOLATION, `a frame of unknown kind ${this.#opcode}`);
    }
  }

  /** @param {Buffer} piece */
  #readPayload(piece) {
    const isControl = this.#opcode >= CLOSE;
    const whole = this.#left === 0;
    const kept = isControl ? this.#control : this.#message;
    // A payload that arrived in one piece needs no copy.
    const inOnePiece = whole && kept.size === 0 && (isControl || this.#fin);
    if (!inOnePiece) kept.add(piece);
    if (!whole) return;
    this.#inPayload = false;
    if (isControl) {
      this.#readControl(inOnePiece ? piece : kept.take());
    } else if (this.#fin) {
      this.#inMessage = false;
      this.#handlers.message(decoded(inOnePiece ? piece : kept.take()));
    } else {
      this.#inMessage = true;
    }
  }

  /** @param {Buffer} payload */
  #readControl(payload) {
    if (this.#opcode === PING) {
      this.#handlers.ping(Buffer.from(payload));
    } else if (this.#opcode === PONG) {
      this.#handlers.pong();
    } else if (payload.length === 0) {
      this.#over = true;
      this.#handlers.close(null, "");
    } else {
      if (payload.length === 1) throw new Violation(PROTOCOL_VIOLATION, "half a close code");
      const code = payload.readUInt16BE(0);
      if (!isSent(code)) throw new Violation(PROTOCOL_VIOLATION, `the close code ${code}`);
      const reason = decoded(payload.subarray(2));
      this.#over = true;
      this.#handlers.close(code, reason);
    }
  }
}

/** @param {Buffer} bytes */
function decoded(bytes) {
  try {
    return UTF8.decode(bytes);
  } catch {
    throw new Violation(NOT_UTF8, "a text that is not UTF-8");
  }
}

/**
 * Return whether a frame can have this close code (RFC 6455 section 7.4, and the registry: 1012 to 1014).
 * @param {number} code
 */
function isSent(code) {
  return (code >= 1000 && code <= 1014 && code !== 1004 && code !== 1005 && code !== 1006) || (code >= 3000 && code < 5000);
}
