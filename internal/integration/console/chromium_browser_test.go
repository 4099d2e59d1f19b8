//go:build browser

package console_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium with one page, driven by the DevTools protocol over a pipe: JSON
// that ends with a zero byte, to file 3 and from file 4.
type browser struct {
	t       *testing.T
	in      *os.File
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	loaded  chan struct{}
	faults  []string // the lines of the page's console
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Params json.RawMessage `json:"params"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// patience is how long the browser may take for one thing on a busy machine.
const patience = 90 * time.Second

func openBrowser(t *testing.T) *browser {
	t.Helper()
	program := os.Getenv("ONCEWARD_CHROMIUM")
	if program == "" {
		program = "chromium"
	}
	_, err := exec.LookPath(program)
	require.NoError(t, err, "scripts/browser.sh installs it")
	toBrowser, in, err := os.Pipe()
	require.NoError(t, err)
	out, fromBrowser, err := os.Pipe()
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	// not t.TempDir: Chromium's helpers write there until the end
	profile, err := os.MkdirTemp("", "onceward-chromium-")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-dev-shm-usage", "--hide-scrollbars",
		"--force-device-scale-factor=1", "--user-data-dir="+profile, "--remote-debugging-pipe",
		"about:blank")
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser}
	cmd.Stderr, cmd.Stdout = log, log
	require.NoError(t, cmd.Start())
	_, _ = toBrowser.Close(), fromBrowser.Close()
	b := &browser{t: t, in: in, waiting: map[int]chan message{}, loaded: make(chan struct{}, 16)}
	var reader sync.WaitGroup
	reader.Go(func() { b.read(out) })
	t.Cleanup(func() {
		b.send("Browser.close", nil, false)
		_ = cmd.Wait()
		_ = in.Close()
		reader.Wait()
		_ = os.RemoveAll(profile)
	})
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(out *os.File) {
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if answer := b.waiting[m.ID]; m.ID != 0 && answer != nil {
			delete(b.waiting, m.ID)
			answer <- m
		}
		switch m.Method {
		case "Page.loadEventFired":
			b.loaded <- struct{}{}
		case "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown":
			if text := string(m.Params); !strings.Contains(text, "favicon") &&
				!strings.Contains(text, "the server responded with a status of") {
				b.faults = append(b.faults, text)
			}
		}
		b.mu.Unlock()
	}
}

func (b *browser) send(method string, params map[string]any, wants bool) chan message {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	text, err := json.Marshal(map[string]any{"id": b.next, "method": method, "params": params,
		"sessionId": b.session})
	if b.session == "" || method == "Browser.close" {
		text, err = json.Marshal(map[string]any{"id": b.next, "method": method, "params": params})
	}
	require.NoError(b.t, err)
	answer := make(chan message, 1)
	if wants {
		b.waiting[b.next] = answer
	}
	if _, err := b.in.Write(append(text, 0)); wants {
		require.NoError(b.t, err)
	}
	return answer
}

// call waits for the answer.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	select {
	case m := <-b.send(method, params, true):
		require.Nil(b.t, m.Error, method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(m.Result, result))
		}
	case <-time.After(patience):
		b.t.Fatalf("%s: no answer", method)
	}
}

// look sets the size of the window, and dark or light.
func (b *browser) look(width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false},
		nil)
	b.call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme",
			"value": scheme}}}, nil)
}

// open goes to a page, and waits until it is there with its style.
func (b *browser) open(url string) {
	b.t.Helper()
	b.loads(func() { b.call("Page.navigate", map[string]any{"url": url}, nil) })
}

// loads calls do, which loads another page, and waits for that page.
func (b *browser) loads(do func()) {
	b.t.Helper()
	for len(b.loaded) > 0 {
		<-b.loaded
	}
	do()
	select {
	case <-b.loaded:
	case <-time.After(patience):
		b.t.Fatal("no page was loaded")
	}
}

// press presses a key of the keyboard.
func (b *browser) press(key string) {
	b.t.Helper()
	text := map[string]string{"Enter": "\r"}[key]
	code := map[string]int{"Tab": 9, "Enter": 13}[key]
	b.call("Input.dispatchKeyEvent",
		map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code,
			"text": text}, nil)
	b.call("Input.dispatchKeyEvent",
		map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code},
		nil)
}

// write types a text where the focus is.
func (b *browser) write(text string) {
	b.t.Helper()
	b.call("Input.insertText", map[string]any{"text": text}, nil)
}

// text returns the whole text of the page.
func (b *browser) text() string {
	b.t.Helper()
	return eval[string](b, `document.body.innerText`)
}

// eval returns the value of an expression of JavaScript. The page's policy does not apply to it.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	var got struct {
		Result struct {
			Value T `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true},
		&got)
	require.Nil(b.t, got.Exception, expression)
	return got.Result.Value
}

// shot returns a picture of the whole page.
func (b *browser) shot(width int) []byte {
	b.t.Helper()
	height := eval[float64](b, `document.documentElement.scrollHeight`)
	var got struct {
		Data string `json:"data"`
	}
	b.call("Page.captureScreenshot", map[string]any{
		"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
	}, &got)
	png, err := base64.StdEncoding.DecodeString(got.Data)
	require.NoError(b.t, err)
	return png
}

// quiet fails if a page's console has complaints, such as something that its policy forbids.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Empty(b.t, b.faults, "of the browser's console")
	b.faults = nil
}
