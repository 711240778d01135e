// The connection to a hub: the agent registers, is told of sessions, and dials a connection of its own for each.

import { create, toBinary } from "@bufbuild/protobuf";
import { type AgentToHub, AgentToHubSchema, HubToAgentSchema, OfferSchema, type Open } from "../wire/gen/tapml_pb";
import { decode } from "../wire/codec";
import { messageOf } from "./failure";
import { Gpu } from "./gpu";
import { infoToWire } from "./info";
import { PROTOCOL, VERSION } from "./limits";
import { CAPABILITIES } from "./requests";
import { adapterText, Session, type House, type Numbers } from "./session";

/** The WebSocket subprotocol between agents and hubs. */
const HUB_PROTOCOL = "tapml.hub.v1";

/** How often the agent shows that it is there, and how long it may hear nothing, milliseconds. */
const BEAT = 5_000;
const SILENCE = 20_000;

/** How long to wait before dialling again: the first time, and at most. */
const FIRST = 250;
const MOST = 15_000;

/** How long a new connection may take. */
const HANDSHAKE = 15_000;

/** Sessions that are over and still shown. */
const SHOWN = 12;

/** Where the hub is and who the agent says it is. */
export interface Address {
  /** `ws://host:port` or `wss://host:port`. */
  hub: string;
  name: string;
  token: string;
}

/** How things are, for whoever shows it. */
export interface State {
  hub: string;
  /** The name that the hub knows this agent by; empty while it does not. */
  name: string;
  /** What there is to say of the connection. */
  status: "dialling" | "connected" | "waiting" | "refused" | "stopped";
  reason: string;
  browser: string;
  adapter: string;
  limits: [name: string, value: number][];
  sessions: Numbers[];
}

/** An agent of a hub. It dials again whenever the connection breaks, until it is stopped. */
export class Agent {
  readonly state: State;
  private readonly instance = crypto.randomUUID();
  private readonly sessions = new Set<Session>();
  private socket: WebSocket | undefined;
  private stopped = false;
  private refused = false;
  private delay = FIRST;
  private heard = 0;

  constructor(private readonly house: House, private readonly address: Address) {
    this.state = {
      hub: address.hub,
      name: "",
      status: "dialling",
      reason: "",
      browser: house.browser,
      adapter: "",
      limits: [],
      sessions: [],
    };
  }

  /** Serves until stopped, or until the hub refuses this agent. */
  async serve(): Promise<void> {
    while (!this.stopped) {
      try {
        await this.once();
      } catch (thrown) {
        this.state.reason = messageOf(thrown);
      }
      this.socket?.close();
      this.state.name = "";
      if (this.stopped || this.refused) return;
      this.state.status = "waiting";
      await new Promise((done) => setTimeout(done, this.delay * (0.75 + Math.random() / 2)));
      this.delay = Math.min(MOST, this.delay * 2);
    }
  }

  /** Ends all sessions, each with a post-mortem, and the connection. */
  stop(): void {
    this.stopped = true;
    this.state.status = "stopped";
    this.sessions.forEach((s) => s.stop());
    this.socket?.close();
  }

  /** One connection, from dialling to its end. */
  private async once(): Promise<void> {
    this.state.status = "dialling";
    // The device is looked at anew each time: it may have been lost, or another.
    const gpu = await Gpu.open(this.house.api, { mobile: false, f16: true, subgroups: true }, this.house.browser);
    const { info } = gpu;
    gpu.close();
    this.state.adapter = adapterText(info);
    const { max_workgroup_size: [x, y, z], ...others } = info.limits;
    this.state.limits = [...Object.entries(others), ...Object.entries({ x, y, z }).map(([k, v]) => [`max_workgroup_size.${k}`, v])] as [string, number][];
    const socket = (this.socket = dial(`${this.address.hub}/agent`, HUB_PROTOCOL));
    await opened(socket);
    this.heard = Date.now();
    this.say({
      case: "register",
      value: {
        $typeName: "tapml.v1.Register",
        versionMin: VERSION,
        versionMax: VERSION,
        name: this.address.name,
        token: this.address.token,
        agent: `${this.house.agent}, ${this.house.browser}`,
        instance: this.instance,
        devices: [create(OfferSchema, { name: this.house.device, info: infoToWire(info), sessions: 1 })],
        capabilities: CAPABILITIES,
        sessions: 0,
      },
    });
    const beat = setInterval(() => {
      if (Date.now() - this.heard > SILENCE) socket.close();
      else if (socket.readyState === WebSocket.OPEN) this.say({ case: "heartbeat", value: { $typeName: "tapml.v1.Heartbeat" } });
    }, BEAT);
    socket.addEventListener("message", (event: MessageEvent<ArrayBuffer>) => this.hear(new Uint8Array(event.data)));
    const why = await closed(socket);
    clearInterval(beat);
    if (!this.refused) this.state.reason = why;
  }

  private say(word: AgentToHub["word"]): void {
    this.socket?.send(toBinary(AgentToHubSchema, create(AgentToHubSchema, { word })) as Uint8Array<ArrayBuffer>);
  }

  private hear(bytes: Uint8Array): void {
    this.heard = Date.now();
    try {
      const { word } = decode(HubToAgentSchema, bytes);
      if (word.case === "registered") {
        this.state.name = word.value.name;
        this.state.status = "connected";
        this.state.reason = "";
        this.delay = FIRST;
      } else if (word.case === "open") {
        void this.open(word.value);
      } else if (word.case === "failed") {
        this.refused = true;
        this.state.status = "refused";
        this.state.reason = [word.value.message, word.value.hint].filter((t) => t !== "").join(" — ");
        this.socket?.close();
      }
    } catch (thrown) {
      this.state.reason = `the hub said something strange: ${messageOf(thrown)}`;
      this.socket?.close();
    }
  }

  private async open({ session: id }: Open): Promise<void> {
    const socket = dial(`${this.address.hub}/session/${encodeURIComponent(id)}`, PROTOCOL);
    const session = new Session(
      id,
      {
        send: (bytes) => {
          if (socket.readyState === WebSocket.OPEN) socket.send(bytes as Uint8Array<ArrayBuffer>);
        },
        close: () => socket.close(1000),
        waiting: () => (socket.readyState === WebSocket.OPEN ? socket.bufferedAmount : 0),
      },
      this.house,
    );
    this.sessions.add(session);
    this.show(session.numbers);
    session.onEnd = () => this.sessions.delete(session);
    // Listeners stand before the connection does, so that no message is missed.
    socket.addEventListener("message", (event: MessageEvent<ArrayBuffer>) => session.receive(new Uint8Array(event.data)));
    try {
      await opened(socket);
    } catch (thrown) {
      this.say({ case: "refused", value: { $typeName: "tapml.v1.Refused", session: id, reason: messageOf(thrown), busy: false } });
    }
    await closed(socket);
    session.left();
  }

  private show(numbers: Numbers): void {
    const all = this.state.sessions;
    all.push(numbers);
    const over = all.filter((s) => s.ended !== undefined);
    if (over.length > SHOWN) all.splice(all.indexOf(over[0]!), 1);
  }
}

function dial(url: string, protocol: string): WebSocket {
  const socket = new WebSocket(url, protocol);
  socket.binaryType = "arraybuffer";
  return socket;
}

function opened(socket: WebSocket): Promise<void> {
  return new Promise((done, fail) => {
    const late = setTimeout(() => socket.close(), HANDSHAKE);
    const settle = (end: () => void): void => {
      clearTimeout(late);
      end();
    };
    socket.addEventListener("open", () => settle(done), { once: true });
    const failed = (): void => settle(() => fail(new Error(`nobody answers at ${new URL(socket.url).host}`)));
    socket.addEventListener("close", failed, { once: true });
    socket.addEventListener("error", failed, { once: true });
  });
}

function closed(socket: WebSocket): Promise<string> {
  return new Promise((done) => {
    if (socket.readyState === WebSocket.CLOSED) return done("the connection is closed");
    socket.addEventListener("close", (event) => {
      done(event.reason !== "" ? event.reason : event.wasClean ? "the hub closed the connection" : "the connection broke");
    });
  });
}
