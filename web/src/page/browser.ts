// The browser's name and version, and the system that it runs on.

interface Brand {
  brand: string;
  version: string;
}

interface UserAgentData {
  platform: string;
  brands: Brand[];
  getHighEntropyValues(hints: string[]): Promise<{ fullVersionList?: Brand[]; platformVersion?: string; model?: string }>;
}

const SYSTEMS: [pattern: RegExp, name: string][] = [
  [/Android [\d.]+/, "$&"],
  [/iPhone|iPad/, "iOS"],
  [/Windows NT/, "Windows"],
  [/Mac OS X/, "macOS"],
  [/CrOS/, "ChromeOS"],
  [/Linux/, "Linux"],
];

/** Such as `Chromium 156.0.8078.79 on Linux`. */
export async function browserName(): Promise<string> {
  const data = (navigator as unknown as { userAgentData?: UserAgentData }).userAgentData;
  if (!data) return fromText(navigator.userAgent);
  const more = await data.getHighEntropyValues(["fullVersionList", "model"]).catch(() => undefined);
  const brands = (more?.fullVersionList ?? data.brands).filter((b) => !/not.?a.?brand/i.test(b.brand));
  const brand = brands.find((b) => b.brand !== "Chromium") ?? brands[0];
  const model = more?.model ? ` (${more.model})` : "";
  return brand ? `${brand.brand} ${brand.version} on ${data.platform}${model}` : fromText(navigator.userAgent);
}

/** From the text that browsers send. */
export function fromText(text: string): string {
  const found =
    /(Firefox|Edg|OPR|Chrome)\/([\d.]+)/.exec(text) ?? /(Version)\/([\d.]+).*Safari/.exec(text) ?? [];
  const name = found[1] === "Version" ? "Safari" : found[1] === "Edg" ? "Edge" : found[1] === "OPR" ? "Opera" : found[1];
  const system = SYSTEMS.find(([pattern]) => pattern.test(text));
  const where = system ? ` on ${system[1] === "$&" ? system[0].exec(text)![0] : system[1]}` : "";
  return `${name ?? "a browser"}${found[2] ? ` ${found[2]}` : ""}${where}`;
}
