package watch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxText bounds what is read of one process, in bytes.
const maxText = 16 << 20

// series is one line of Prometheus' text format.
type series struct {
	metric string
	labels map[string]string
	value  float64
}

// sample is what one process exposes of ours, by the text of each series.
type sample map[string]series

// parse reads Prometheus' text format 0.0.4, and keeps the series whose names begin with
// "onceward_", those of name alone unless it is empty.
func parse(in io.Reader, name string) (sample, error) {
	all := make(sample)
	lines := bufio.NewScanner(io.LimitReader(in, maxText))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "onceward_") {
			continue
		}
		s, err := parseLine(line)
		if err != nil {
			return nil, err
		}
		if name == "" || s.labels["onceward_name"] == name {
			all[line[:strings.LastIndexByte(line, ' ')]] = s
		}
	}
	return all, lines.Err()
}

// parseLine reads "metric{label="value",...} 1". A timestamp behind the value is not exposed by
// what exposes ours.
func parseLine(line string) (s series, err error) {
	bad := fmt.Errorf("%.80q is no line of Prometheus' text format", line)
	s.labels = make(map[string]string)
	end := strings.IndexAny(line, "{ ")
	if end < 0 {
		return s, bad
	}
	s.metric = line[:end]
	rest := line[end:]
	if rest[0] == '{' {
		for rest = rest[1:]; rest != "" && rest[0] != '}'; rest = strings.TrimPrefix(rest, ",") {
			name, value, found := strings.Cut(rest, "=")
			quoted, err := strconv.QuotedPrefix(value)
			if !found || err != nil {
				return s, bad
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return s, bad
			}
			s.labels[name] = text
			rest = value[len(quoted):]
		}
		if rest == "" {
			return s, bad
		}
		rest = rest[1:]
	}
	if s.value, err = strconv.ParseFloat(strings.TrimSpace(rest), 64); err != nil {
		return s, bad
	}
	return s, nil
}

// scrape reads what a process exposes.
func scrape(ctx context.Context, client *http.Client, url, name string) (sample, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s", response.Status)
	}
	s, err := parse(response.Body, name)
	if err == nil && len(s) == 0 {
		err = fmt.Errorf("it exposes no metric of onceward (package telemetry)")
	}
	return s, err
}

// deltas are what counters have grown by between two samples of a process: from zero where a
// series is new, or where it has become less, for then the process has been started again.
func deltas(before, after sample) []series {
	var all []series
	for key, s := range after {
		if old, ok := before[key]; ok && old.value <= s.value {
			s.value -= old.value
		}
		all = append(all, s)
	}
	return all
}
