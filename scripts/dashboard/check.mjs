// node check.mjs: contrib/telemetry/dashboard.json against the types of Grafana's schema, and the types of what is here.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';

const here = new URL('.', import.meta.url);
process.chdir(here.pathname);
mkdirSync('build', { recursive: true });
const text = readFileSync('../../contrib/telemetry/dashboard.json', 'utf8');
writeFileSync('build/file.ts', `import type { Typed, Whole } from '../src/schema';\nexport const dashboard = ${text.trim()} satisfies Whole;\n` +
  JSON.parse(text).panels.map((p) => `export const panel${p.id} = ${JSON.stringify(p, null, 1)} satisfies Typed;\n`).join(''));
try {
  execFileSync('node_modules/.bin/tsc', ['--project', '.'], { stdio: 'inherit' });
} catch {
  process.exit(1); // tsc has said why
}
