// Takes the comments out of the generated messages: they are those of the schema, where they are read and kept.

import fs from "node:fs";

const file = new URL("src/wire/gen/tapml_pb.ts", import.meta.url);
const text = fs.readFileSync(file, "utf8");
const bare = text.replace(/\n *\n?( *)\/\*\*\n(?: *\*.*\n)*? *\*\/\n/g, "\n");
fs.writeFileSync(file, bare.slice(bare.indexOf("// @generated")));
