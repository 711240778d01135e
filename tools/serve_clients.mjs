// The clients of JavaScript against a running `tapml serve`: a tool loop, a structured object, and a stream with its usage.
//
//     npm install --prefix FOLDER openai ai @ai-sdk/openai-compatible zod
//     node tools/serve_clients.mjs FOLDER http://127.0.0.1:8080/v1
//
// The model may say anything: calls and objects are right because their forms are enforced.

import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const [folder, baseURL, apiKey = "none"] = process.argv.slice(2);
const require = createRequire(resolve(folder, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { z } = await load("zod");

const Story = z.object({ hero: z.enum(["Tom", "Lily"]), age: z.number().int().min(1).max(9) });
const Zone = z.object({ zone: z.enum(["UTC", "CET"]) });
const content = "Tell me a story.";

async function openai() {
  const { default: OpenAI } = await load("openai");
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const model = (await client.models.list()).data[0].id;
  const tools = [{ type: "function", function: { name: "get_time", strict: true, parameters: z.toJSONSchema(Zone) } }];
  const messages = [{ role: "user", content }];
  const tool_choice = { type: "function", function: { name: "get_time" } };
  const first = await client.chat.completions.create({ model, messages, tools, tool_choice, parallel_tool_calls: false, max_tokens: 200 });
  const [call] = first.choices[0].message.tool_calls;
  Zone.parse(JSON.parse(call.function.arguments));
  messages.push(first.choices[0].message, { role: "tool", tool_call_id: call.id, content: "noon" });
  const answer = await client.chat.completions.create({ model, messages, tools, max_tokens: 8 });
  assert.equal(answer.choices[0].message.role, "assistant");
  const schema = { name: "story", strict: true, schema: z.toJSONSchema(Story) };
  const form = { type: "json_schema", json_schema: schema };
  const parsed = await client.chat.completions.parse({ model, messages: [messages[0]], response_format: form, max_tokens: 100 });
  Story.parse(parsed.choices[0].message.parsed ?? JSON.parse(parsed.choices[0].message.content));
  const stream = client.chat.completions.stream({ model, messages: [messages[0]], max_tokens: 8, stream_options: { include_usage: true } });
  let text = "";
  stream.on("content", (delta) => (text += delta));
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, text);
  assert.ok(final.usage.completion_tokens > 0);
  return model;
}

async function aiSdk(name) {
  const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
  const { generateObject, generateText, stepCountIs, streamText, tool } = await load("ai");
  const provider = createOpenAICompatible({ name: "tapml", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true });
  const model = provider(name);
  // One call is enough.
  const providerOptions = { tapml: { parallel_tool_calls: false } };
  const options = { model, prompt: content, maxRetries: 0, maxOutputTokens: 100, providerOptions };
  const zones = [];
  const execute = async ({ zone }) => zones.push(zone) && `noon in ${zone}`;
  const tools = { get_time: tool({ description: "The time of a zone", inputSchema: Zone, execute }) };
  // A call at first, a text when there is its result.
  const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" });
  const looped = await generateText({ ...options, tools, prepareStep, stopWhen: stepCountIs(2) });
  assert.ok(zones.length >= 1 && looped.steps.length === 2, JSON.stringify(looped.steps));
  const made = await generateObject({ ...options, schema: Story });
  Story.parse(made.object);
  const streamed = streamText(options);
  let text = "";
  for await (const part of streamed.textStream) text += part;
  assert.equal(await streamed.text, text);
  assert.ok((await streamed.usage).outputTokens > 0);
}

const model = await openai();
console.log("ok openai");
await aiSdk(model);
console.log("ok @ai-sdk/openai-compatible");
