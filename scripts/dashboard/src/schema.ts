// The dashboard has the shape that Grafana's schema wants, or `npm run check` fails: no field that it does not
// know, and no value of another type. check.mjs writes build/file.ts of contrib/telemetry/dashboard.json, in which each
// panel is held against Typed below, and the whole against Whole.
import type { Dashboard, GraphFieldConfig, Panel, RowPanel } from '@grafana/schema';
import type { FieldConfig as HeatmapField, Options as HeatmapOptions } from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as LinesOptions } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

/** Plain is T as JSON has it: text where T has an enum of texts, and no signature that lets any field pass. */
type Plain<T> = T extends string ? `${T}` : T extends Array<infer U> ? Array<Plain<U>> : T extends object ? { [K in keyof T as string extends K ? never : K]: Plain<T[K]> } : T;

/** Some of it: what is left out has Grafana's default. */
type Some<T> = T extends object ? { [K in keyof T]?: T[K] extends unknown[] ? T[K] : Some<T[K]> } : T;

interface Target {
  refId: string;
  datasource: { type: 'prometheus'; uid: string };
  editorMode: 'code';
  expr: string;
  legendFormat: string;
  range: true;
  format?: 'heatmap';
}

type Override = { matcher: { id: string; options: string }; properties: Array<{ id: string; value: unknown }> };

type Of<Kind extends string, Options, Custom> = Omit<Plain<Panel>, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: Kind;
  targets: Target[];
  options: Some<Plain<Options>>;
  fieldConfig: { defaults: Omit<Plain<NonNullable<Panel['fieldConfig']>['defaults']>, 'custom'> & { custom?: Plain<Custom> }; overrides: Override[] };
};

export type Typed = Plain<RowPanel> | Of<'stat', StatOptions, never> | Of<'timeseries', LinesOptions, GraphFieldConfig> | Of<'heatmap', HeatmapOptions, HeatmapField>;

type Variable = NonNullable<NonNullable<Dashboard['templating']>['list']>[number];

export type Whole = Omit<Plain<Dashboard>, 'panels' | 'templating' | 'timepicker'> & {
  panels: Typed[];
  timepicker: object;
  templating: { list: Array<Omit<Plain<Variable>, 'query' | 'current' | 'options'> & Record<'query' | 'current' | 'options', unknown> & { definition?: string }> };
};
