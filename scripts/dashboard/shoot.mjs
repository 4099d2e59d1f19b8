// node shoot.mjs DASHBOARD ANSWERS OUT [NAME]: opens the page that `npm run build` has made in headless Chromium,
// and writes OUT/dark.png, dark-more.png, light.png and light-more.png, or, with a name, the upper half alone to OUT/NAME.png.
// ONCEWARD_CHROMIUM names the browser's program.
import { spawn } from 'node:child_process';
import { mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const width = 1500;
const [dashboardFile, answersFile, out, name] = process.argv.slice(2);
const dashboard = readFileSync(dashboardFile, 'utf8');
const answers = readFileSync(answersFile, 'utf8');
const dir = mkdtempSync(join(tmpdir(), 'onceward-dashboard-'));
const chromium = spawn(process.env.ONCEWARD_CHROMIUM ?? 'chromium', [
  '--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
  '--disable-dev-shm-usage', '--hide-scrollbars', `--user-data-dir=${join(dir, 'profile')}`, '--remote-debugging-pipe', 'about:blank',
], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });

// The DevTools protocol over a pipe: JSON that ends with a zero byte.
let next = 0;
let session;
let rest = '';
const waiting = new Map();
const faults = [];
chromium.stdio[4].setEncoding('utf8').on('data', (text) => {
  const messages = (rest + text).split('\0');
  rest = messages.pop();
  for (const m of messages.map((each) => JSON.parse(each))) {
    if (m.id) {
      const { resolve, reject } = waiting.get(m.id);
      m.error ? reject(new Error(m.error.message)) : resolve(m.result);
    } else if (m.method === 'Runtime.exceptionThrown' || (m.method === 'Runtime.consoleAPICalled' && m.params.type === 'error')) {
      faults.push(JSON.stringify(m.params).slice(0, 1500));
    }
  }
});

function call(method, params = {}) {
  const id = ++next;
  chromium.stdio[3].write(JSON.stringify({ id, method, params, sessionId: session }) + '\0');
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${method}: no answer`)), 120_000);
    waiting.set(id, { resolve: (r) => { clearTimeout(late); resolve(r); }, reject: (e) => { clearTimeout(late); reject(e); } });
  });
}

async function evaluate(expression) {
  const { result, exceptionDetails } = await call('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
  if (exceptionDetails) {
    throw new Error(JSON.stringify(exceptionDetails));
  }
  return result.value;
}

/** shoot draws the rows of the grid from one y to another. */
async function shoot(name, look) {
  const page = join(dir, `${name}.html`);
  const script = (text) => text.replaceAll('</script', '<\\/script');
  writeFileSync(page, `<!doctype html><meta charset="utf-8"><title>${name}</title>
<style>${readFileSync(new URL('build/main.css', import.meta.url), 'utf8')}</style><style>body { margin: 0 }</style>
<div id="root"></div>
<script>window.dashboard = ${script(dashboard)}; window.answers = ${script(answers)}; window.look = ${JSON.stringify({ ...look, width })};</script>
<script src="${new URL('build/main.js', import.meta.url)}"></script>`);
  await call('Emulation.setDeviceMetricsOverride', { width, height: 1000, deviceScaleFactor: 1, mobile: false });
  await call('Page.navigate', { url: pathToFileURL(page).href });
  await evaluate(`new Promise((done) => { const look = () => (window.drawn ? done() : setTimeout(look, 100)); look(); })`);
  if (faults.length > 0) {
    throw new Error(`${name}: the page complains: ${faults.slice(0, 2).join('\n')}`);
  }
  const height = await evaluate('document.getElementById("root").firstElementChild.getBoundingClientRect().height');
  const { data } = await call('Page.captureScreenshot', { format: 'png', captureBeyondViewport: true, clip: { x: 0, y: 0, width, height, scale: 1 } });
  const png = Buffer.from(data, 'base64');
  writeFileSync(join(out, `${name}.png`), png);
  console.log(`${name}.png: ${width} x ${height}, ${png.length} bytes`);
}

try {
  const { targetId } = await call('Target.createTarget', { url: 'about:blank' });
  ({ sessionId: session } = await call('Target.attachToTarget', { targetId, flatten: true }));
  await call('Page.enable');
  await call('Runtime.enable');
  mkdirSync(out, { recursive: true });
  // Two pictures of the whole: what is looked at first, and, from "Uncertain, lost, failed" on, what comes then.
  const half = JSON.parse(dashboard).panels.find((p) => p.title === 'Uncertain, lost, failed').gridPos.y;
  if (name) {
    await shoot(name, { mode: 'light', from: 0, to: half });
  } else {
    await shoot('dark', { mode: 'dark', from: 0, to: half });
    await shoot('dark-more', { mode: 'dark', from: half, to: 1e9 });
    await shoot('light', { mode: 'light', from: 0, to: half });
    await shoot('light-more', { mode: 'light', from: half, to: 1e9 });
  }
} finally {
  chromium.kill();
  await new Promise((gone) => (chromium.exitCode === null && chromium.signalCode === null ? chromium.on('exit', gone) : gone()));
  rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
}
