package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strings"
)

// uncleanFile is the list of the files that are not clean yet, next to this file.
const uncleanFile = "unclean.txt"

// readList reads the paths of a list, one on each line. Lines that begin with # are comments.
func readList(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var list []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text := strings.TrimSpace(lines.Text()); text != "" && !strings.HasPrefix(text, "#") {
			list = append(list, text)
		}
	}
	return list, nil
}

const head = `# Files whose prose is not clean yet, sorted. Remove a line when its file is clean: scripts/prose.sh -update does.
# Do not add one.
`

func writeList(path string, list []string) error {
	return os.WriteFile(path, []byte(head+strings.Join(append(list, ""), "\n")), 0o644)
}

// dirty returns the set of files that have findings.
func dirty(breaches []breach) map[string]bool {
	files := map[string]bool{}
	for _, f := range breaches {
		files[f.path] = true
	}
	return files
}

// judge returns what is wrong: findings in files that are not listed, and lines of the list that
// have to go.
func judge(breaches []breach, listed []string, exists func(string) bool) []string {
	var problems []string
	for _, f := range breaches {
		if !slices.Contains(listed, f.path) {
			problems = append(problems, f.String())
		}
	}
	unclean := dirty(breaches)
	for i, path := range listed {
		at := fmt.Sprintf("%s/%s: %s", home, uncleanFile, path)
		switch {
		case !exists(path):
			problems = append(problems,
				at+" does not exist; scripts/prose.sh -update removes it, or follows a rename that is in git's index")
		case !unclean[path]:
			problems = append(problems, at+" is clean; scripts/prose.sh -update removes it")
		}
		if i > 0 && listed[i-1] >= path {
			problems = append(problems,
				at+" is listed twice or out of order; scripts/prose.sh -update sorts the list")
		}
	}
	return problems
}

// shorten returns the list as it should be. It adds a file only for a listed one that was renamed
// to it.
func shorten(listed []string, unclean map[string]bool, renamed map[string]string) []string {
	var list []string
	for _, path := range listed {
		if now, ok := renamed[path]; ok && !unclean[path] {
			path = now
		}
		if unclean[path] {
			list = append(list, path)
		}
	}
	sort.Strings(list)
	return slices.Compact(list)
}

// renames returns the files that were renamed since the list was committed last, by their old
// paths. Without git there are none.
func renames(ctx context.Context, root string) map[string]string {
	renamed := map[string]string{}
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	last := git("log", "-1", "--format=%H", "--", home+"/"+uncleanFile)
	if last == "" {
		return renamed
	}
	for row := range strings.Lines(git("-c", "diff.renameLimit=0", "diff", "--cached", "--relative",
		"-M40%", "--diff-filter=R", "--name-status", last)) {
		if columns := strings.Split(strings.TrimSpace(row), "\t"); len(columns) == 3 {
			renamed[columns[1]] = columns[2]
		}
	}
	return renamed
}
