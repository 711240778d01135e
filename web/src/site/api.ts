// The types of the module: what a page asks for, and what it is answered. Nothing is imported here, so that these alone, with the class
// `Engine`, are the declarations of the package.

/** One message of a chat. */
export interface Message {
  role: string;
  content: string | ContentPart[];
}

/** A part of what a message says; images are taken of the user, by models that see. */
export type ContentPart =
  | { type: "text"; text: string }
  /** A PNG, JPEG or WebP file as a data URL, `data:image/png;base64,…`; others are not fetched. */
  | { type: "image_url"; image_url: { url: string; detail?: string } }
  | { type: "image"; image: Blob | ImageBitmap | RawImage };

/** Pixels, row by row: red, green, blue and an alpha that is passed over, a byte each. They need no browser that decodes files. */
export interface RawImage {
  data: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
}

/** An image of a request: a data URL, a file or pixels. */
export type Picture = string | Blob | ImageBitmap | RawImage;

/** How a site is loaded. */
export interface LoadOptions {
  /** Told before weights are loaded what that takes. Weights are loaded unless it gives false. */
  onPlan?: (plan: Plan) => boolean | void | Promise<boolean | void>;
  /** Bytes of the weights that are on the device, of all. */
  onProgress?: (bytes: number, total: number) => void;
  /** A WebGPU (`GPU`) to use in this thread, with no worker: Node's Dawn. */
  gpu?: object;
  /** A worker that runs this module under the name `tapml engine`, where a bundler makes workers in a way of its own. */
  worker?: Worker;
}

/** Fields of OpenAI's requests that are taken; others are refused. */
export interface Request {
  model?: string;
  stream?: boolean;
  max_tokens?: number;
  max_completion_tokens?: number;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repetition_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  logit_bias?: Record<string, number>;
  seed?: number;
  stop?: string | string[];
  chat_template_kwargs?: object;
  /** The form that the answer must have; nothing is written if it cannot be enforced. */
  response_format?: ResponseFormat | null;
  /** Forms under the names of vLLM, SGLang and llama-server: one of them. */
  structured_outputs?: { json?: JsonSchema; json_object?: boolean; regex?: string; choice?: string[]; grammar?: string } | null;
  guided_json?: JsonSchema | null;
  guided_regex?: string | null;
  guided_choice?: string[] | null;
  guided_grammar?: string | null;
  json_schema?: JsonSchema | null;
  /** Rules in GBNF or in llguidance's Lark. */
  grammar?: string | null;
  regex?: string | null;
  ebnf?: string | null;
}

/** A schema, or its text. */
export type JsonSchema = object | string;
/** OpenAI's `response_format`, and a regular expression as TGI has it. */
export type ResponseFormat =
  | { type: "text" }
  | { type: "json_object"; schema?: JsonSchema }
  | { type: "json_schema"; json_schema: { name?: string; schema: JsonSchema; strict?: boolean | null; description?: string } }
  | { type: "regex"; value: string };
export type ChatRequest = Request & { messages: Message[] };
export type CompletionRequest = Request & { prompt: string };

/** Tokens of a request. */
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

/** An answer, or a piece of one; `tapml` tells more of the whole. */
export interface Envelope<Choice> {
  id: string;
  object: string;
  created: number;
  model: string;
  choices: (Choice & { index: number; finish_reason: string | null })[];
  usage?: Usage;
  tapml?: { ids: number[]; reopened: number };
}
export type ChatCompletion = Envelope<{ message: { role: "assistant"; content: string } }>;
export type ChatChunk = Envelope<{ delta: { role?: "assistant"; content?: string } }>;
export type Completion = Envelope<{ text: string }>;

/** As `chat.completions` and `completions` of OpenAI's clients. */
export interface Creates<R, Whole, Chunk> {
  create(request: R & { stream: true }): Promise<AsyncIterable<Chunk>>;
  create(request: R & { stream?: false }): Promise<Whole>;
  create(request: R): Promise<Whole | AsyncIterable<Chunk>>;
}

/** What loading a site takes; known before its weights are. */
export interface Plan {
  model: string;
  device: string;
  /** Bytes of all weights, and of those that an earlier visit did not keep. */
  weights: number;
  download: number;
  /** Bytes of device memory. */
  memory: number;
  /** Why nothing is kept for the next visit; empty if it is. */
  notKept: string;
  /** What may go wrong, in sentences. */
  warnings: string[];
}

/** A site that is loaded. */
export interface Facts {
  model: string;
  tapml: string;
  device: string;
  /** The file of the program that the device runs. */
  program: string;
  chat: boolean;
  /** Whether chats may have images. */
  sees: boolean;
  context: number;
  /** Rows of the kernel list that the program launches. */
  rows: string[];
  /** Bytes that came over the network. */
  downloaded: number;
  /** Where the files are kept, or why they are not. */
  kept: string;
  /** Recorded calls by which the device can be checked; 0 if the site has none. */
  calls: number;
}

/** An element with the numbers that judge it. */
export interface Element {
  output: number;
  index: number;
  exact: number;
  observed: number;
  allowed: number;
}

export interface CallFailure {
  case: string;
  node: string;
  ratio: number;
  criterion: string;
  element?: Element;
  error?: string;
}
export interface Worst {
  case: string;
  node: string;
  ratio: number;
  element?: Element;
}

/** The verdict on one operator. */
export interface OpVerdict {
  op: string;
  kernel: string;
  cases: number;
  failed: number;
  worst: Worst;
  seconds: number;
  histogram: number[];
  kernel_hash: string;
  accumulate: string;
  failures: CallFailure[];
  kernels: { kernel: string; cases: number; failed: number; worst: number }[];
}

/** The report of `tapml check`, and what is known of the browser. */
export interface CheckReport {
  schema: number;
  suite: string;
  target: { platform: string; device: string; driver: string };
  cases: number;
  failed: number;
  skipped: { case: string; reason: string }[];
  ops: OpVerdict[];
  seconds: number;
  /** What an agent of a browser does not know. */
  browser: { agent: string; tapml: string; model: string; program: string; sha256: string; f16: boolean; subgroups: [least: number, most: number]; limits: object };
}

