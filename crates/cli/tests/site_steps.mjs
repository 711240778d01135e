// What tests do with a site, in a page or under Node: { load: URL }, { write: request }, { check: true }, { lose: true } takes the device
// away, { close: true }; in a page alone { next: true } waits for the server, { reload: true }, { abandon: URL, at: bytes } reloads while
// it loads, { frames: [steps, …] } does steps in documents of their own. What loads, writes, checks or fails is posted.

export async function runSteps(Engine, options, steps, post, page, done = 0) {
  let engine;
  for (let at = done; at < steps.length; at++) {
    const step = steps[at];
    try {
      if (step.load) {
        let plan;
        const began = performance.now();
        engine = await Engine.load(step.load, { ...options, onPlan: (found) => void (plan = found) });
        await post({ facts: engine.facts, plan, seconds: (performance.now() - began) / 1000 });
      } else if (step.abandon) {
        await new Promise((enough) => Engine.load(step.abandon, { ...options, onProgress: (bytes) => bytes >= step.at && enough() }));
        await page.reload(at + 1);
      } else if (step.write) await post(await write(engine, step.write));
      else if (step.check) await post({ report: await engine.check() });
      else if (step.close) engine.close();
      else if (step.reload) await page.reload(at + 1);
      else if (step.frames) page.frames(step.frames);
      else if (step.lose) page.lose();
      else await page.next();
    } catch (thrown) {
      await post({ error: `${thrown.message} ${thrown.hint ?? ""}` });
      if (!engine) return;
    }
  }
}

async function write(engine, wish) {
  const began = performance.now();
  const passed = () => (performance.now() - began) / 1000;
  let [text, first, last] = ["", undefined, undefined];
  const { create } = "messages" in wish ? engine.chat.completions : engine.completions;
  for await (const chunk of await create({ ...wish, stream: true })) {
    first ??= passed();
    text += chunk.choices[0].text ?? chunk.choices[0].delta.content ?? "";
    last = chunk;
  }
  return { text, first, seconds: passed(), finish: last.choices[0].finish_reason, usage: last.usage, ...last.tapml };
}
