// Bounds of the wire, as in crates/rpc/src/wire/limits.rs. What exceeds them is refused before anything is done with it.

/** The version of the schema that is spoken here. */
export const VERSION = 1;
/** The WebSocket subprotocol of a session. */
export const PROTOCOL = "tapml.v1";
/** Largest message, bytes. */
export const MAX_MESSAGE = 16 << 20;
/** Most fields in one message, nested ones included. */
export const MAX_FIELDS = 1 << 17;
/** Longest name, label or file name, characters. */
export const MAX_NAME = 4096;
/** Longest text of a kernel, characters. */
export const MAX_TEXT = 4 << 20;
/** Most bindings of one dispatch, constants of one kernel, and so on. */
export const MAX_BINDINGS = 1024;
/** Most turns of one message. */
export const MAX_TURNS = 256;
/** Most commands of one list. */
export const MAX_COMMANDS = 1 << 20;
/** Bytes of one transfer message, and of one blob. */
export const PIECE = 4 << 20;
/** Bytes of messages under way. */
export const WINDOW = 48 << 20;
/** Messages under way. */
export const WINDOW_COUNT = 16_384;
/** Most hashes in one question. */
export const MAX_HASHES = 16;
/** Bytes of unanswered requests after which they are acknowledged. */
export const ACKNOWLEDGE = 6 << 20;
/** Unanswered requests after which they are acknowledged. */
export const ACKNOWLEDGE_COUNT = 1024;

/** What a byte of a kernel's text counts for: the text, its parsed form, and what is compiled from it. */
export const TEXT_BYTES = 4;

/** What a command of a list counts for, bytes. */
export const COMMAND_BYTES = 256;
