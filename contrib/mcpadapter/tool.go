package mcpadapter

import (
	"context"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// find asks the server for the tool of a call; the handlers below the middleware answer that from
// memory. It returns a tool without annotations and schema where the server does not list it, which
// counts as destructive.
func find(ctx context.Context, next mcp.MethodHandler, req *mcp.CallToolRequest) *mcp.Tool {
	params := &mcp.ListToolsParams{}
	for {
		res, err := next(ctx, "tools/list", &mcp.ListToolsRequest{Session: req.Session,
			Params: params, Extra: req.Extra})
		page, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return &mcp.Tool{}
		}
		for _, tool := range page.Tools {
			if tool.Name == req.Params.Name {
				return tool
			}
		}
		if page.NextCursor == "" {
			return &mcp.Tool{}
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
}

// hints of a tool: those of the operator, or those of the server.
func (t *Tool) hints(tool *mcp.Tool) mcp.ToolAnnotations {
	for _, a := range []*mcp.ToolAnnotations{t.Annotations, tool.Annotations} {
		if a != nil {
			return *a
		}
	}
	return mcp.ToolAnnotations{}
}

// irreversible reports whether a second run could do harm: DestructiveHint is true by default, and
// IdempotentHint is false.
func irreversible(a mcp.ToolAnnotations) bool {
	return !a.IdempotentHint && (a.DestructiveHint == nil || *a.DestructiveHint)
}

// validate checks arguments against the input schema as mcp.AddTool's handlers do, with the
// defaults of the schema. A schema that cannot be used checks nothing.
func validate(tool *mcp.Tool, raw json.RawMessage) error {
	text, err := json.Marshal(tool.InputSchema)
	schema := new(jsonschema.Schema)
	if err != nil || tool.InputSchema == nil || json.Unmarshal(text, schema) != nil {
		return nil
	}
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil
	}
	args := map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &args); err != nil {
			return err
		}
	}
	if err := resolved.ApplyDefaults(&args); err != nil {
		return err
	}
	return resolved.Validate(args)
}
