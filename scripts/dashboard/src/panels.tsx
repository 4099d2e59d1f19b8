// What a panel of each type looks like: Grafana's components, given what Grafana's panels give them.
import { type DataFrame, getFieldDisplayValues, type GrafanaTheme2, type TimeRange } from '@grafana/data';
import type { BigValueColorMode, BigValueGraphMode, BigValueJustifyMode, BigValueTextMode, LegendDisplayMode, TooltipDisplayMode, VizLegendOptions } from '@grafana/schema';
import { BigValue, TimeSeries } from '@grafana/ui';

import type { Panel } from './dashboard';
import { Heatmap } from './heatmap';

export interface PanelProps {
  panel: Panel;
  frames: DataFrame[];
  range: TimeRange;
  theme: GrafanaTheme2;
  width: number;
  height: number;
}

export function PanelBody(props: PanelProps) {
  switch (props.panel.type) {
    case 'stat':
      return <Stat {...props} />;
    case 'timeseries':
      return <Lines {...props} />;
    case 'heatmap':
      return <Heatmap {...props} />;
    default:
      throw new Error(`nothing here draws a panel of type ${props.panel.type}`);
  }
}

function Stat({ panel, frames, range, theme, width, height }: PanelProps) {
  const options = panel.options;
  const values = getFieldDisplayValues({
    data: frames,
    fieldConfig: panel.fieldConfig,
    reduceOptions: options.reduceOptions,
    replaceVariables: (text: string) => text,
    sparkline: true,
    theme,
    timeZone: 'utc',
  });
  if (values.length !== 1) {
    throw new Error(`${panel.title}: ${values.length} values`);
  }
  return (
    <BigValue
      value={values[0].display}
      sparkline={values[0].sparkline && { ...values[0].sparkline, timeRange: range }}
      colorMode={options.colorMode as BigValueColorMode}
      graphMode={options.graphMode as BigValueGraphMode}
      justifyMode={options.justifyMode as BigValueJustifyMode}
      textMode={options.textMode as BigValueTextMode}
      hasLinks={false}
      theme={theme}
      width={width}
      height={height}
    />
  );
}

function Lines({ panel, frames, range, width, height }: PanelProps) {
  const legend: VizLegendOptions = { calcs: [], ...panel.options.legend, displayMode: panel.options.legend.displayMode as LegendDisplayMode };
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      timeRange={range}
      timeZone="utc"
      width={width}
      height={height}
      legend={legend}
      options={{ legend, tooltip: panel.options.tooltip as { mode: TooltipDisplayMode } }}
    />
  );
}
