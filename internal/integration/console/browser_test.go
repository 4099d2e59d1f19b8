//go:build browser

package console_test

import (
	"bytes"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

// The widths of a desktop and of a phone.
const (
	wide   = 1280
	narrow = 400
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

// structure finds missing structure that people need who do not see the page.
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
	const within = (r, o) => r.left >= o.left - 1 && r.right <= o.right + 1 && r.top >= o.top - 1 && r.bottom <= o.bottom + 1;
	const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
	for (const svg of all('svg')) {
		const box = svg.getBoundingClientRect(), labels = [...svg.querySelectorAll('text')], at = labels.map(e => e.getBoundingClientRect());
		labels.forEach((e, i) => { if (!within(at[i], box)) bad.push('cut off: ' + e.textContent); if (at.slice(0, i).some(b => !apart(at[i], b))) bad.push('written over another: ' + e.textContent) });
	}
	const view = {left: 0, right: innerWidth, top: -1e9, bottom: 1e9}, walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const n = walk.currentNode, range = document.createRange();
		range.selectNodeContents(n);
		if (n.data.trim() && !n.parentElement.closest('.hidden, .skip, details') && [...range.getClientRects()].some(r => !within(r, view))) bad.push('out of sight: ' + n.data.trim());
	}
	return bad;
})()`

// focusable are the elements that the Tab key must reach, in the order of the page.
const focusable = `[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]')].filter(e => !e.closest('details:not([open]) > :not(summary)')).map(name);
	function name(e) { return e.tagName + ' ' + (e.textContent || e.id).trim().slice(0, 40) }`

// focused is the element that has the focus now, and whether the focus is visible.
const focused = `(() => { const e = document.activeElement, s = getComputedStyle(e);
	return [e.tagName + ' ' + (e.textContent || e.id).trim().slice(0, 40), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 ? 'seen' : 'not seen'] })()`

// accessible checks the page that is open.
func (b *browser) accessible(what string) {
	b.t.Helper()
	found := eval[[]string](b, contrast)
	assert.Empty(b.t, found[1:], "%s: contrast", what)
	assert.NotEqual(b.t, "0", found[0], "%s: the page has no text", what)
	assert.Empty(b.t, eval[[]string](b, structure), what)
}

// walk moves over the page with the Tab key.
func (b *browser) walk(what string) {
	b.t.Helper()
	want := eval[[]string](b, "("+strings.Replace(focusable, ";\n", ")\n;", 1))
	assert.GreaterOrEqual(b.t, len(want), 5, "%s: the keyboard reaches %q alone", what, want)
	for i, name := range want {
		b.press("Tab")
		got := eval[[]string](b, focused)
		if !assert.Equal(b.t, []string{name, "seen"}, got, "%s: Tab %d", what, i+1) {
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
	require.Fail(b.t, "the keyboard does not reach it", text)
}

// keep writes a picture if pictures are wanted.
func keep(t *testing.T, name string, picture []byte) {
	t.Helper()
	dir := os.Getenv("ONCEWARD_SHOTS")
	if dir == "" {
		return
	}
	small := squeeze(t, picture)
	assert.LessOrEqual(t, len(small), maxShot, name)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), small, 0o644))
}

// squeeze reduces a picture to its 256 most frequent colors.
func squeeze(t *testing.T, picture []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(picture))
	require.NoError(t, err)
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
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out,
		paletted))
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
	assert.GreaterOrEqual(t, eval[int](b, `document.querySelectorAll('svg .bar').length`), 100)
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
	b := openBrowser(t)
	for i := range 5 {
		r.doubt(fmt.Sprint("order-", i), func(r *dedup.Request) {
			r.Label = fmt.Sprintf("order %d of customer %d", 70+i, i%2)
		})
		b.open(r.url) // the keys are of different ages
	}
	r.marked("payment")
	const evil = `"><script>xss=1</script><img src=x onerror=xss=1>`
	_, err := r.deduper.Claim(t.Context(), "evil", func(r *dedup.Request) { r.Label = evil })
	require.NoError(t, err)
	r.doubt("doubt of order-77", func(r *dedup.Request) {
		r.Label = "order 77 of customer 1"
		r.Origin = driver.Origin{Source: "orders", Partition: 3, Offset: 41077, Generation: 12}
	}, dedup.WithFingerprint([]byte("77")))
	key := id("doubt of order-77")
	for _, page := range []struct{ name, at string }{
		{"inflight", "inflight"}, {"uncertain", "uncertain"}, {"search", "search"},
		{"record", "key?id=" + key}, {"done", "key?id=" + id("done")},
		{"absent", "key?id=" + id("none")}, {"question", "change?do=released&id=" + key},
		{"forget", "change?do=forget&id=" + id("done")},
		{"bulk", "bulk?do=released&text=customer+1"}, {"bulk done", "bulk?do=done"},
		{"error", "key?id=0"},
	} {
		for _, scheme := range []string{"dark", "light"} {
			for _, width := range []int{narrow, wide} {
				b.look(width, 480, scheme)
				b.open(r.url + page.at)
				b.accessible(fmt.Sprint(page.name, " ", scheme, " ", width))
				if width == wide && scheme == "light" &&
					slices.Contains([]string{"record", "uncertain", "question", "inflight",
						"search", "bulk"}, page.name) {
					keep(t, page.name, b.shot(width))
				}
				if width == narrow && scheme == "dark" && page.name == "uncertain" {
					keep(t, "uncertain-narrow", b.shot(width))
				}
			}
		}
		b.walk(page.name)
	}
	assert.False(t, eval[bool](b, `typeof xss !== 'undefined'`), "a label ran as a script")
	b.open(r.url + "inflight")
	assert.Contains(t, b.text(), "<script>xss=1")
	assert.False(t, eval[bool](b, `typeof xss !== 'undefined'`), "a label ran as a script")

	b.open(r.url + "uncertain")
	b.tabTo("order 77 of customer 1")
	b.loads(func() { b.press("Enter") })
	b.tabTo("Record as done")
	b.loads(func() { b.press("Enter") })
	b.tabTo("Yes, record it as done")
	b.loads(func() { b.press("Enter") })
	assert.Contains(t, b.text(), "resolved as done: it was uncertain and is succeeded")
	assert.Equal(t, driver.StateSucceeded, r.state("doubt of order-77"))
	assert.Empty(t, eval[string](b, `document.cookie`), "a script would see it")
	b.quiet()
}

// unlike compares how the two ways to resolve a key look.
const unlike = `(() => ['happened', 'again'].map(c => { const e = document.querySelector('.choice .button.' + c), s = getComputedStyle(e);
	return [e.textContent.trim(), s.backgroundColor, s.color, s.borderTopStyle, s.fontWeight] }))()`

// TestBrowserBulk: at both widths a person without a mouse filters the uncertain keys, and settles
// them together. Nothing happens before the phrase is typed in.
func TestBrowserBulk(t *testing.T) {
	r := newRig(t, onRedis(t, redisadapter.Full))
	for i := range 6 {
		r.doubt(fmt.Sprint("order-", i), func(r *dedup.Request) {
			r.Label = fmt.Sprintf("order %d of customer %d", i, i%2)
		})
	}
	b := openBrowser(t)
	for customer, change := range []struct {
		width           int
		button, phrase  string
		wrong, confirms string
		is              driver.State
	}{
		{narrow, "Let it run again", "may run again", "it happened", "Let the ticked run again",
			driver.StateReleased},
		{wide, "Record as done", "it happened", "may run again", "Record the ticked as done",
			driver.StateSucceeded},
	} {
		b.look(change.width, 700, "light")
		b.open(r.url + "uncertain")
		looks := eval[[][]string](b, unlike)
		for i, what := range []string{"text", "background", "color", "border", "weight"} {
			assert.NotEqual(t, looks[0][i], looks[1][i], what)
		}
		b.tabTo("text")
		b.write(fmt.Sprint("customer ", customer))
		b.loads(func() { b.press("Enter") })
		b.accessible("a filtered list")
		b.tabTo(change.button)
		b.loads(func() { b.press("Enter") })
		require.Equal(t, 3, eval[int](b, `document.querySelectorAll('[name=key]:checked').length`))
		b.tabTo("confirm")
		b.write(change.wrong)
		assert.False(t, eval[bool](b, `document.forms[0].checkValidity()`), "the wrong phrase")
		b.loads(func() { eval[any](b, `void HTMLFormElement.prototype.submit.call(document.forms[0])`) })
		assert.Contains(t, b.text(), "Nothing was changed")
		b.accessible("a question that was not confirmed")
		for i := range 3 {
			assert.Equal(t, driver.StateUncertain, r.state(fmt.Sprint("order-", 2*i+customer)))
		}
		b.tabTo("confirm")
		b.write(change.phrase)
		b.tabTo(change.confirms)
		b.loads(func() { b.press("Enter") })
		assert.Contains(t, b.text(), "3 keys were resolved as")
		b.accessible("many resolved")
		for i := range 3 {
			assert.Equal(t, change.is, r.state(fmt.Sprint("order-", 2*i+customer)))
		}
		b.open(r.url + "uncertain")
		assert.Contains(t, b.text(), "Changed here")
		b.accessible("a list with what was changed")
	}
	b.quiet()
}

// TestBrowserFurther: in a Redis full of other keys, a person without a mouse looks further until
// the last page.
func TestBrowserFurther(t *testing.T) {
	r, proxy := crowdedRig(t, 100_000)
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
		if strings.Contains(b.text(), "Looked at all of about") {
			b.quiet()
			return
		}
		b.tabTo("Look further")
		b.loads(func() { b.press("Enter") })
	}
	assert.Fail(t, "there is always more", b.text())
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
	assert.Contains(t, b.text(), "This came from another site")
	assert.Equal(t, driver.StateUncertain, r.state("doubtful"))
}
