// The dashboard and the answers of Prometheus, as src/main.tsx is given them, and frames of data from both.
import {
  createTheme, type DataFrame, dateTime, type Field, type FieldConfig, type FieldConfigSource, FieldType, fieldMatchers, getDisplayProcessor,
  getFieldDisplayName, getMinMaxAndDelta, type GrafanaTheme2, renderLegendFormat, type TimeRange,
} from '@grafana/data';

export interface Target {
  refId: string;
  expr: string;
  legendFormat: string;
  format?: string;
}

export interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { h: number; w: number; x: number; y: number };
  fieldConfig: FieldConfigSource<any>;
  options: any;
  targets: Target[];
}

export interface Dashboard {
  title: string;
  panels: Panel[];
}

/** What Prometheus said to a query_range, by "panel/refId". */
export interface Answers {
  start: number; // seconds
  end: number;
  steps: Record<number, number>; // seconds, by panel
  names: string[];
  matrices: Record<string, Series[]>;
}

export interface Series {
  metric: Record<string, string>;
  values: Array<[number, string]>;
}

export function timeRange(a: Answers): TimeRange {
  const from = dateTime(a.start * 1000);
  const to = dateTime(a.end * 1000);
  return { from, to, raw: { from, to } };
}

/** A frame of each series, as Grafana's data source makes them: every step has a value or null. */
export function framesOf(panel: Panel, a: Answers, theme: GrafanaTheme2): DataFrame[] {
  const times: number[] = [];
  const step = a.steps[panel.id];
  for (let t = a.start; t <= a.end; t += step) {
    times.push(t * 1000);
  }
  const frames: DataFrame[] = [];
  for (const target of panel.targets) {
    const matrix = a.matrices[`${panel.id}/${target.refId}`];
    if (!matrix) {
      throw new Error(`${panel.title}: ${target.refId} was not asked`);
    }
    for (const series of target.format === 'heatmap' ? buckets(matrix) : matrix) {
      const values: Array<number | null> = times.map(() => null);
      for (const [t, text] of series.values) {
        const v = Number(text);
        values[Math.round((t - a.start) / step)] = Number.isFinite(v) ? v : null;
      }
      frames.push({
        refId: target.refId,
        length: times.length,
        fields: [
          { name: 'Time', type: FieldType.time, config: {}, values: times },
          {
            name: 'Value', type: FieldType.number, values, labels: series.metric,
            config: { displayNameFromDS: target.legendFormat ? renderLegendFormat(target.legendFormat, series.metric) : panel.title },
          },
        ],
      });
    }
  }
  let index = 0;
  for (const frame of frames) {
    frame.fields[1].state = { seriesIndex: index++ };
    configure(frame.fields[1], frame, frames, panel.fieldConfig, theme);
    frame.fields[0].display = getDisplayProcessor({ field: frame.fields[0], theme, timeZone: 'utc' });
  }
  return frames;
}

/** Buckets that count what is in them, in order of their bounds, of buckets that count all below, too. */
function buckets(matrix: Series[]): Series[] {
  const bound = (s: Series) => (s.metric.le === '+Inf' ? Infinity : Number(s.metric.le));
  const ordered = [...matrix].sort((x, y) => bound(x) - bound(y));
  return ordered.map((s, i) => {
    const below = new Map(i === 0 ? [] : ordered[i - 1].values);
    return { metric: s.metric, values: s.values.map(([t, v]) => [t, String(Math.max(0, Number(v) - Number(below.get(t) ?? 0)))] as [number, string]) };
  });
}

/** configure gives a field the panel's defaults, and the overrides that are about it. */
function configure(field: Field, frame: DataFrame, all: DataFrame[], source: FieldConfigSource<any>, theme: GrafanaTheme2) {
  const config: FieldConfig = { ...structuredClone(source.defaults), ...field.config };
  field.config = config;
  const name = getFieldDisplayName(field, frame, all);
  for (const o of source.overrides) {
    if (!fieldMatchers.get(o.matcher.id).get(o.matcher.options)(field, frame, all)) {
      continue;
    }
    for (const p of o.properties) {
      const custom = p.id.startsWith('custom.');
      const into: any = custom ? (config.custom ??= {}) : config;
      into[custom ? p.id.slice('custom.'.length) : p.id] = p.value;
    }
  }
  field.state = { ...field.state, displayName: name, range: getMinMaxAndDelta(field) };
  field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
}

/** Grafana's theme, and its font under the name that the package of the font gives it. */
export const font = 'Inter Variable';
export const themeOf = (mode: 'dark' | 'light'): GrafanaTheme2 => createTheme({ colors: { mode }, typography: { fontFamily: `'${font}', sans-serif` } });
