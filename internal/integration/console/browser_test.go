//go:build browser

package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

// The widths of a desktop and of a phone.
const (
	wide   = 1280
	narrow = 375
)

// maxShot is the largest size of a picture that is kept.
const maxShot = 150 << 10

// contrast finds texts and bars that do not stand out from their background: WCAG 2.2, 1.4.3 and
// 1.4.11.
const contrast = `(() => {
	const rgb = s => (s.match(/[\d.]+/g) || []).map(Number);
	const lum = c => { const f = c.slice(0, 3).map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 }); return .2126 * f[0] + .7152 * f[1] + .0722 * f[2] };
	const ratio = (a, b) => { const x = lum(a), y = lum(b); return (Math.max(x, y) + .05) / (Math.min(x, y) + .05) };
	const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c } return [255, 255, 255] };
	const bad = [];
	let n = 0;
	const check = (e, what, color, least) => { n++; const r = ratio(color, behind(e)); if (r < least) bad.push(what + ': ' + r.toFixed(2)) };
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement, text = walk.currentNode.data.trim(), s = getComputedStyle(e);
		if (!text || e.closest('.hidden, .skip')) continue;
		const size = parseFloat(s.fontSize), large = size >= 24 || size >= 18.66 && s.fontWeight >= 700;
		check(e.closest('svg') ? e.closest('svg').parentElement : e, e.tagName + ' ' + text.slice(0, 40), rgb(e.closest('svg') ? s.fill : s.color), large ? 3 : 4.5);
	}
	for (const e of document.querySelectorAll('svg .bar')) check(e.closest('svg').parentElement, 'bar ' + e.getAttribute('class'), rgb(getComputedStyle(e).fill), 3);
	for (const e of document.querySelectorAll('input:not([type=hidden])')) check(e.parentElement, 'border of ' + e.id, rgb(getComputedStyle(e).borderTopColor), 3);
	return [String(n), ...new Set(bad)];
})()`

// structure finds structure that is missing for people who do not see the page.
const structure = `(() => {
	const bad = [];
	const all = q => [...document.querySelectorAll(q)];
	for (const q of ['header', 'nav', 'main', 'footer', 'h1', 'title']) if (!document.querySelector(q)) bad.push('no ' + q);
	if (!document.documentElement.lang) bad.push('no language');
	for (const e of all('input:not([type=hidden])')) if (!e.labels.length) bad.push('no label: ' + e.id);
	for (const e of all('th')) if (!e.scope) bad.push('th without scope: ' + e.textContent);
	for (const e of all('svg')) if (e.getAttribute('aria-hidden') !== 'true' && !(e.getAttribute('role') === 'img' && document.getElementById(e.getAttribute('aria-labelledby')))) bad.push('svg without a name');
	for (const e of all('[aria-labelledby], [aria-describedby]')) for (const a of ['aria-labelledby', 'aria-describedby']) if (e.hasAttribute(a) && !document.getElementById(e.getAttribute(a))) bad.push(a + ' of nothing: ' + e.getAttribute(a));
	for (const e of all('a')) if (!e.textContent.trim()) bad.push('a link without text');
	const ids = all('[id]').map(e => e.id);
	if (new Set(ids).size !== ids.length) bad.push('an id twice');
	let level = 1;
	for (const e of all('h1, h2, h3')) { const l = Number(e.tagName[1]); if (l > level + 1) bad.push('a heading is left out before ' + e.textContent); level = l }
	if (document.documentElement.scrollWidth > innerWidth) bad.push('the page is ' + document.documentElement.scrollWidth + ' wide in ' + innerWidth);
	return bad;
})()`

// focusable are the elements that the Tab key must reach, in the order of the page.
const focusable = `[...document.querySelectorAll('a[href], button, input:not([type=hidden]), summary, [tabindex="0"]')].filter(e => !e.closest('details:not([open]) > :not(summary)')).map(name);
	function name(e) { return e.tagName + ' ' + (e.textContent || e.id).trim().slice(0, 40) }`

// focused is the element that has the focus now, and whether the focus is visible.
const focused = `(() => { const e = document.activeElement, s = getComputedStyle(e);
	return [e.tagName + ' ' + (e.textContent || e.id).trim().slice(0, 40), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 ? 'seen' : 'not seen'] })()`

// accessible checks the page that is open.
func (b *browser) accessible(what string) {
	b.t.Helper()
	found := eval[[]string](b, contrast)
	for _, fault := range found[1:] {
		b.t.Errorf("%s: contrast of %s", what, fault)
	}
	if found[0] == "0" {
		b.t.Errorf("%s: the page has no text", what)
	}
	for _, fault := range eval[[]string](b, structure) {
		b.t.Errorf("%s: %s", what, fault)
	}
}

// walk moves over the page with the Tab key.
func (b *browser) walk(what string) {
	b.t.Helper()
	want := eval[[]string](b, "("+strings.Replace(focusable, ";\n", ")\n;", 1))
	if len(want) < 5 {
		b.t.Errorf("%s: the keyboard reaches %q alone", what, want)
	}
	for i, name := range want {
		b.press("Tab")
		got := eval[[]string](b, focused)
		if got[0] != name || got[1] != "seen" {
			b.t.Errorf("%s: Tab %d leads to %q, %s; want %q", what, i+1, got[0], got[1], name)
			return
		}
	}
}

// tabTo presses Tab until an element with this text has the focus.
func (b *browser) tabTo(text string) {
	b.t.Helper()
	for range 40 {
		b.press("Tab")
		if strings.Contains(eval[[]string](b, focused)[0], text) {
			return
		}
	}
	b.t.Fatalf("the keyboard does not reach %q", text)
}

// keep writes a picture if pictures are wanted.
func keep(t *testing.T, name string, picture []byte) {
	t.Helper()
	dir := os.Getenv("ONCEWARD_SHOTS")
	if dir == "" {
		return
	}
	small := squeeze(t, picture)
	if len(small) > maxShot {
		t.Errorf("%s has %d bytes", name, len(small))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), small, 0o644); err != nil {
		t.Fatal(err)
	}
}

// squeeze reduces a picture to its 256 most frequent colors.
func squeeze(t *testing.T, picture []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.RGBA]int{}
	bounds := img.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	colours := make([]color.RGBA, 0, len(counts))
	for c := range counts {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int { return counts[b] - counts[a] })
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	paletted := image.NewPaletted(bounds, palette)
	draw.Draw(paletted, bounds, img, bounds.Min, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out,
		paletted); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestBrowserOverview: the overview of traffic in fake time, dark and light, wide and narrow.
func TestBrowserOverview(t *testing.T) {
	got := pages(t, "", "uncertain", "style.css")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := got[strings.TrimPrefix(r.URL.Path, "/")]
		if page == nil {
			http.NotFound(w, r)
			return
		}
		for name, values := range page.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(page.Code)
		_, _ = w.Write(page.Body.Bytes())
	}))
	t.Cleanup(server.Close)
	b := openBrowser(t)
	for _, scheme := range []string{"light", "dark"} {
		for width, size := range map[int]string{wide: "", narrow: "-narrow"} {
			what := "overview-" + scheme + size
			b.look(width, 900, scheme)
			b.open(server.URL + "/")
			b.accessible(what)
			if size == "" || scheme == "light" {
				keep(t, what, b.shot(width))
			}
		}
	}
	b.look(wide, 900, "light")
	b.open(server.URL + "/")
	b.walk("overview")
	if n := eval[int](b, `document.querySelectorAll('svg .bar').length`); n < 100 {
		t.Errorf("%d bars", n)
	}
	eval[any](b, `document.querySelectorAll('details').forEach(d => d.open = true)`)
	b.accessible("overview with its tables")
	b.look(narrow, 900, "dark")
	b.accessible("narrow overview with its tables")
	b.quiet()
}

// TestBrowserChanges: over a real Redis, a person without a mouse finds an uncertain key and
// resolves it.
func TestBrowserChanges(t *testing.T) {
	r := newRig(t, onRedis(t, redisadapter.Full))
	for i := range 5 {
		r.doubt(fmt.Sprint("order-", i))
	}
	const evil = `"><script>xss=1</script><img src=x onerror=xss=1>`
	if _, err := r.deduper.Claim(t.Context(), "evil", func(r *dedup.Request) { r.Label = evil }); err != nil {
		t.Fatal(err)
	}
	_, err := dedup.Do(t.Context(), r.deduper, "doubt of order-77",
		func(ctx context.Context) ([]byte, error) {
			if err := dedup.MarkIrreversible(ctx); err != nil {
				return nil, err
			}
			return nil, errors.New("the provider did not answer")
		}, func(r *dedup.Request) { r.Label = "order 77" },
		func(r *dedup.Request) {
			r.Origin = driver.Origin{Source: "orders", Partition: 3, Offset: 41077,
				Generation: 12}
		}, dedup.WithFingerprint([]byte("77")))
	if err == nil {
		t.Fatal("the attempt succeeded")
	}
	b := openBrowser(t)
	key := id("doubt of order-77")
	for _, page := range []struct{ name, at string }{
		{"inflight", "inflight"}, {"uncertain", "uncertain"}, {"search", "search"},
		{"record", "key?id=" + key}, {"done", "key?id=" + id("done")},
		{"absent", "key?id=" + id("none")}, {"question", "change?do=done&id=" + key},
		{"error", "key?id=0"},
	} {
		for _, scheme := range []string{"dark", "light"} {
			for _, width := range []int{narrow, wide} {
				b.look(width, 480, scheme)
				b.open(r.url + page.at)
				b.accessible(fmt.Sprint(page.name, " ", scheme, " ", width))
				if width == wide && scheme == "light" &&
					slices.Contains([]string{"record", "uncertain", "question", "inflight",
						"search"}, page.name) {
					keep(t, page.name, b.shot(width))
				}
			}
		}
		b.walk(page.name)
	}
	if eval[bool](b, `typeof xss !== 'undefined'`) {
		t.Error("a label ran as a script")
	}
	b.open(r.url + "inflight")
	if text := eval[string](b, `document.body.innerText`); !strings.Contains(text,
		"<script>xss=1") || eval[bool](b, `typeof xss !== 'undefined'`) {
		t.Error("the label is not shown as text")
	}

	b.open(r.url + "uncertain")
	b.tabTo(key)
	b.loads(func() { b.press("Enter") })
	b.tabTo("It has happened")
	b.loads(func() { b.press("Enter") })
	b.tabTo("Yes, record it as done")
	b.loads(func() { b.press("Enter") })
	if text := eval[string](b, `document.body.innerText`); !strings.Contains(text,
		"resolved as done: it was uncertain and is succeeded") {
		t.Errorf("the page says %q", text)
	}
	if s := r.state("doubt of order-77"); s != driver.StateSucceeded {
		t.Errorf("the key is %v", s)
	}
	if cookies := eval[string](b, `document.cookie`); cookies != "" {
		t.Errorf("a script would see %q", cookies)
	}
	b.quiet()
}

// TestBrowserFurther: in a Redis full of other keys, a person without a mouse looks further until
// the last page.
func TestBrowserFurther(t *testing.T) {
	r, proxy := crowdedRig(t)
	b := openBrowser(t)
	for _, page := range []string{"inflight", ""} {
		for _, scheme := range []string{"dark", "light"} {
			for _, width := range []int{narrow, wide} {
				b.look(width, 480, scheme)
				b.open(r.url + page)
				b.accessible(fmt.Sprint("a part of ", page, " ", scheme, " ", width))
				if width == wide && scheme == "light" && page == "inflight" {
					keep(t, "further", b.shot(width))
				}
			}
		}
	}
	b.open(r.url + "inflight")
	b.walk("a part of inflight")
	proxy.SetRules()
	for range 100 {
		if strings.Contains(eval[string](b, `document.body.innerText`), "Looked at all of about") {
			b.quiet()
			return
		}
		b.tabTo("Look further")
		b.loads(func() { b.press("Enter") })
	}
	t.Errorf("the page says %q", eval[string](b, `document.body.innerText`))
}

// TestBrowserOtherSite: a page of another site sends the form with all its fields. It arrives
// without the cookie, and is refused.
func TestBrowserOtherSite(t *testing.T) {
	r := newRig(t, onRedis(t, redisadapter.Full))
	b := openBrowser(t)
	b.open(r.url + "change?do=done&id=" + id("doubtful"))
	form := eval[string](b, `document.querySelector('form').innerHTML`)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%schange">%s</form>`, r.url, form)
	}))
	t.Cleanup(other.Close)
	at := strings.Replace(other.URL, "127.0.0.1", "localhost", 1) // another site than 127.0.0.1
	b.open(at)
	b.loads(func() { eval[any](b, `void document.forms[0].submit()`) })
	if text := eval[string](b, `document.body.innerText`); !strings.Contains(text,
		"This came from another site") {
		t.Errorf("the page says %q", text)
	}
	if s := r.state("doubtful"); s != driver.StateUncertain {
		t.Errorf("the key is %v", s)
	}
}
