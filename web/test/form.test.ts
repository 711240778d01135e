// The module that holds answers to a form, as pages call it: crates/constraint, as it is kept in dist/.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { Files } from "../src/site/files";
import { asksForForm, FORMS, Forms, type FormFields } from "../src/site/form";
import type { Manifest, SiteFile } from "../src/site/manifest";

/** A token for every visible character of ASCII, behind one that ends texts. */
const LETTERS = Array.from({ length: 95 }, (_, at) => String.fromCharCode(32 + at));

/** The file of a vocabulary, as crates/constraint/src/vocabulary.rs writes it; here every number takes one byte. */
const VOCABULARY = Uint8Array.from([1, 0, 96, (5 << 2) | 1, ...Buffer.from("<end>"), ...LETTERS.flatMap((c) => [1 << 2, c.charCodeAt(0)])]);

/** The files of a site that has nothing but this; tells which were loaded. */
function siteOf(module: Uint8Array): { site: Manifest; files: Files; loaded: string[] } {
  const [loaded, at] = [[] as string[], (file: string): SiteFile => ({ file, bytes: 0, sha256: "" })];
  const get = async ({ file }: SiteFile): Promise<Uint8Array> => {
    loaded.push(file);
    return file === "module" ? module : VOCABULARY;
  };
  const site = { form: { module: at("module"), vocabulary: at("vocabulary") } } as unknown as Manifest;
  return { site, files: { get } as unknown as Files, loaded };
}

/** A text of a form, chosen among what it allows: of two tokens now the first, now the last. */
function textOf(forms: Forms, fields: FormFields): string {
  const form = forms.begin(fields)!;
  let text = "";
  for (let at = 0; at < 200; at++) {
    const logits = new Float32Array(96);
    form.apply(logits);
    const allowed = [...logits.keys()].filter((id) => logits[id] === 0);
    const id = allowed.includes(0) ? 0 : at % 3 === 0 ? allowed[0]! : allowed.at(-1)!;
    if (id > 0) text += LETTERS[id - 1];
    if (form.accept(id) || id === 0) return text;
  }
  return text;
}

test("fields that ask for a form are those of the server", () => {
  const source = fs.readFileSync(path.join(ROOT, "crates/constraint/src/request.rs"), "utf8");
  const listed = /FORM_FIELDS: &\[&str\] = &\[([^\]]*)\]/.exec(source)![1]!;
  assert.deepEqual([...listed.matchAll(/"(\w+)"/g)].map((found) => found[1]), [...FORMS]);
  assert.deepEqual([{}, { response_format: { type: "text" }, regex: null }].map(asksForForm), [false, false]);
  assert.deepEqual([{ response_format: {} }, { regex: "a" }].map(asksForForm), [true, true]);
});

test("a text is held to its form, and what cannot be enforced is refused", async (t) => {
  const unpacked = spawnSync("zstd", ["-dc", path.join(ROOT, "web/dist/form.wasm.zst")], { maxBuffer: 1 << 24 });
  if (unpacked.status !== 0) return t.skip("the program `zstd` is not installed");
  const { site, files, loaded } = siteOf(new Uint8Array(unpacked.stdout));
  const forms = await Forms.open(site, files);
  assert.deepEqual(loaded, ["module", "vocabulary"]);
  const schema = { type: "object", properties: { old: { type: "boolean" }, names: { type: "array", items: { enum: ["Ann", "Bob"] }, maxItems: 2, minItems: 1 } }, required: ["old", "names"], additionalProperties: false };
  for (let round = 0; round < 2; round++) {
    const found = JSON.parse(textOf(forms, { response_format: { type: "json_schema", json_schema: { name: "a", schema } } })) as { old: boolean; names: string[] };
    assert.equal(typeof found.old, "boolean");
    assert.ok(found.names.length > 0 && found.names.every((name) => ["Ann", "Bob"].includes(name)));
    assert.match(textOf(forms, { regex: "(yes|no) \\d{3}" }), /^(yes|no) \d{3}$/);
    assert.equal(textOf(forms, { grammar: 'root ::= "f(" [0-9] ")"' }).length, 4);
  }
  const refused = (fields: FormFields, expected: RegExp): void => assert.throws(() => forms.begin(fields), expected);
  refused({ guided_json: { not: {} } }, /`guided_json`: the form of the answer cannot be enforced/);
  refused({ response_format: { type: "xml" } }, /expected `text`, `json_object` or `json_schema`/);
  refused({ regex: "a", guided_regex: "a" }, /both give a form/);
  refused({ guided_json: { $ref: "http://localhost/a.json" } }, /cannot be enforced/);
  assert.equal(forms.broken, false);
  await assert.rejects(Forms.open({} as Manifest, files), /nothing to force a form/);
  await assert.rejects(Forms.open(site, { get: async () => new Uint8Array(8) } as unknown as Files), /does not take the module/);
});
