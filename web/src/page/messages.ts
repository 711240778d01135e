// What the page and its worker say to each other.

/** How the agent is to run. */
export interface Start {
  hub: string;
  name: string;
  token: string;
  /** Seconds that a request may run. */
  deadline: number;
  /** Bytes of buffers of one session. */
  memory: number;
  /** The release of TapML that the page belongs to. */
  version: string;
}
