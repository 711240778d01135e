// The part of the page that takes pictures: chosen, pasted or dropped, they wait above the text until it is sent.

import { invalid } from "../core/failure";

const by = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** See the file. */
export class Pictures {
  private urls: string[] = [];

  constructor(private readonly fail: (thrown: unknown) => void) {}

  /** Serves the button, and pictures that are pasted or dropped. */
  serve(): void {
    const [button, chosen] = [by("add-picture"), by<HTMLInputElement>("pictures")];
    button.hidden = false;
    button.onclick = () => chosen.click();
    chosen.onchange = () => {
      void this.add(chosen.files);
      chosen.value = "";
    };
    by("input").onpaste = (event) => {
      if (event.clipboardData?.files.length) event.preventDefault();
      void this.add(event.clipboardData?.files);
    };
    document.body.ondragover = (event) => event.preventDefault();
    document.body.ondrop = (event) => {
      event.preventDefault();
      void this.add(event.dataTransfer?.files);
    };
  }

  /** Takes what waits, as data URLs. */
  take(): string[] {
    const taken = this.urls;
    this.urls = [];
    this.show();
    return taken;
  }

  private async add(files: Iterable<File> | null | undefined): Promise<void> {
    // Browsers empty the list when the event is over.
    for (const file of [...(files ?? [])]) {
      try {
        const url = await dataUrl(file);
        // What the browser cannot read is told before it is sent.
        await thumbnail(url).decode();
        this.urls.push(url);
      } catch {
        this.fail(invalid(`${file.name} is no picture that this browser reads`).hinted("give a PNG, JPEG or WebP file"));
      }
    }
    this.show();
  }

  private show(): void {
    by("waiting").replaceChildren(...this.urls.map((url, at) => {
      const image = thumbnail(url);
      image.title = "take it away";
      image.onclick = () => {
        this.urls.splice(at, 1);
        this.show();
      };
      return image;
    }));
  }
}

/** A small view of a picture. */
export function thumbnail(url: string): HTMLImageElement {
  return Object.assign(document.createElement("img"), { src: url, alt: "a picture" });
}

/** A file as its own URL. */
function dataUrl(file: File): Promise<string> {
  return new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result as string);
    reader.onerror = () => fail(reader.error ?? new Error("unread"));
    reader.readAsDataURL(file);
  });
}
