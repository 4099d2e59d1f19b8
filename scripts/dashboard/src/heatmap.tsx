// A heatmap. Grafana's own is part of its server's code and in no package, so this one is ours: cells on
// Grafana's plot (UPlotChart, UPlotConfigBuilder), with the scheme, scale and filter that the panel asks for.
import { type DataFrame, getValueFormat, formattedValueToString } from '@grafana/data';
import { AxisPlacement, ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { UPlotChart, UPlotConfigBuilder } from '@grafana/ui';
import * as schemes from 'd3-scale-chromatic';
import { useMemo } from 'react';
import type uPlot from 'uplot';

import type { PanelProps } from './panels';

export function Heatmap({ panel, frames, range, theme, width, height }: PanelProps) {
  const config = useMemo(() => {
    const builder = new UPlotConfigBuilder('utc');
    const format = getValueFormat(panel.options.yAxis.unit);
    const names = frames.map((f) => f.fields[1].labels!.le);
    builder.addScale({ scaleKey: 'x', isTime: true, orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right, range: () => [range.from.valueOf(), range.to.valueOf()] });
    builder.addScale({ scaleKey: 'y', orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up, range: () => [0, frames.length] });
    builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone: 'utc', theme });
    builder.addAxis({
      scaleKey: 'y', placement: AxisPlacement.Left, theme,
      splits: (u: uPlot) => {
        const apart = Math.ceil((18 * frames.length) / (u.bbox.height / devicePixelRatio)); // so that labels do not touch
        return names.map((_, i) => i + 1).filter((s) => s % apart === 0);
      },
      values: (_u: uPlot, splits: number[]) => splits.map((s) => (names[s - 1] === '+Inf' ? 'inf' : formattedValueToString(format(Number(names[s - 1]))))),
    });
    builder.addSeries({ scaleKey: 'y', theme, lineWidth: 0, show: true, pxAlign: false } as never);
    builder.addHook('draw', (u: uPlot) => cells(u, frames, panel.options, theme.isDark));
    return builder;
  }, [frames, panel, range, theme]);
  const times = frames[0].fields[0].values;
  return <UPlotChart config={config} data={[times, times.map(() => null)] as uPlot.AlignedData} width={width} height={height} />;
}

/** colours of a scheme, from few to many: it begins near the background, as Grafana's do. */
function colours(options: any, dark: boolean): string[] {
  const at = (schemes as any)[`interpolate${options.color.scheme}`] as (t: number) => string;
  const n: number = options.color.steps;
  const all = Array.from({ length: n }, (_, i) => at(i / (n - 1)));
  return dark !== options.color.reverse ? all.reverse() : all;
}

function cells(u: uPlot, frames: DataFrame[], options: any, dark: boolean) {
  const shades = colours(options, dark);
  const most = Math.max(...frames.flatMap((f) => f.fields[1].values.map((v) => v ?? 0)));
  const { ctx } = u;
  const gap = options.cellGap;
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  frames.forEach((frame, row) => {
    const [time, value] = frame.fields;
    const top = u.valToPos(row + 1, 'y', true);
    const bottom = u.valToPos(row, 'y', true);
    for (let i = 1; i < frame.length; i++) {
      const v = value.values[i];
      if (v === null || v <= options.filterValues.le) {
        continue;
      }
      const left = u.valToPos(time.values[i - 1], 'x', true);
      const right = u.valToPos(time.values[i], 'x', true);
      const share = options.color.scale === 'exponential' ? Math.pow(v / most, options.color.exponent) : v / most;
      ctx.fillStyle = shades[Math.min(shades.length - 1, Math.floor(share * shades.length))];
      ctx.fillRect(left, top + gap / 2, Math.max(1, right - left - gap), bottom - top - gap);
    }
  });
  ctx.restore();
}
