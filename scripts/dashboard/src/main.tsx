// The whole dashboard on one page, at the places that its gridPos say.
import '@fontsource-variable/inter';
import { initPluginTranslations } from '@grafana/i18n';
import { GlobalStyles, PanelChrome, ThemeContext } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import { type Answers, type Dashboard, font, framesOf, type Panel, themeOf, timeRange } from './dashboard';
import { PanelBody } from './panels';

declare global {
  interface Window {
    dashboard: Dashboard;
    answers: Answers;
    look: { mode: 'dark' | 'light'; width: number; from: number; to: number };
    drawn: boolean;
  }
}

// Of Grafana's grid, in pixels.
const columns = 24;
const cell = 30;
const gap = 8;
const margin = 16;

function Placed({ panel, above }: { panel: Panel; above: number }) {
  const { mode, width } = window.look;
  const theme = themeOf(mode);
  const column = (width - 2 * margin + gap) / columns;
  const g = panel.gridPos;
  const size = { width: Math.floor(g.w * column - gap), height: g.h * (cell + gap) - gap };
  const place = { position: 'absolute' as const, left: margin + g.x * column, top: margin + (g.y - above) * (cell + gap) + head, ...size };
  if (panel.type === 'row') {
    return <div style={{ ...place, ...theme.typography.h6, lineHeight: `${cell}px`, color: theme.colors.text.primary }}>⌄ {panel.title}</div>;
  }
  const frames = framesOf(panel, window.answers, theme);
  return (
    <div style={place}>
      <PanelChrome {...size} title={panel.title} description={panel.description} padding="md">
        {(innerWidth: number, innerHeight: number) =>
          frames.length === 0 ? (
            <div style={{ textAlign: 'center', lineHeight: `${innerHeight}px`, color: theme.colors.text.secondary }}>No data</div>
          ) : (
            <PanelBody panel={panel} frames={frames} range={timeRange(window.answers)} theme={theme} width={innerWidth} height={innerHeight} />
          )
        }
      </PanelChrome>
    </div>
  );
}

const head = 40;

function Page() {
  const { mode, width, from, to } = window.look;
  const theme = themeOf(mode);
  const panels = window.dashboard.panels.filter((p) => p.gridPos.y >= from && p.gridPos.y < to);
  const rows = Math.max(...panels.map((p) => p.gridPos.y + p.gridPos.h)) - from;
  const clock = (s: number) => new Date(s * 1000).toISOString().slice(11, 19);
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ position: 'relative', width, height: rows * (cell + gap) + 2 * margin + head, background: theme.colors.background.canvas }}>
        <div style={{ position: 'absolute', left: margin, top: margin, right: margin, display: 'flex', gap: 24, color: theme.colors.text.secondary }}>
          <b style={{ color: theme.colors.text.primary }}>{window.dashboard.title}</b>
          <span>Name: All ({window.answers.names.join(', ')})</span>
          <span style={{ marginLeft: 'auto' }}>{clock(window.answers.start)} to {clock(window.answers.end)} UTC</span>
        </div>
        {panels.map((p) => <Placed key={p.id} panel={p} above={from} />)}
      </div>
    </ThemeContext.Provider>
  );
}

async function draw() {
  await initPluginTranslations('grafana-ui');
  document.documentElement.style.colorScheme = window.look.mode;
  await Promise.all([400, 500].map((weight) => document.fonts.load(`${weight} 14px '${font}'`)));
  createRoot(document.getElementById('root')!).render(<Page />);
  setTimeout(() => { window.drawn = true; }, 1500);
}

void draw();
