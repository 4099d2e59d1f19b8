package mcpadapter

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// find asks the server for the tool of a call. The handlers below the middleware answer this from
// memory. If the server does not list the tool, find returns one without annotations and schema,
// which counts as destructive.
func find(ctx context.Context, next mcp.MethodHandler, req *mcp.CallToolRequest) *mcp.Tool {
	named := func(tool *mcp.Tool) bool { return tool.Name == req.Params.Name }
	for params := new(mcp.ListToolsParams); ; {
		res, err := next(ctx, "tools/list", &mcp.ListToolsRequest{Session: req.Session,
			Params: params, Extra: req.Extra})
		page, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return &mcp.Tool{}
		}
		if i := slices.IndexFunc(page.Tools, named); i >= 0 {
			return page.Tools[i]
		}
		if page.NextCursor == "" {
			return &mcp.Tool{}
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
}

// validate checks arguments against the input schema as mcp.AddTool's handlers do, with the
// defaults of the schema. If the schema cannot be used, nothing is checked.
func validate(tool *mcp.Tool, raw json.RawMessage) error {
	text, err := json.Marshal(tool.InputSchema)
	schema, args := new(jsonschema.Schema), map[string]any{}
	if err != nil || tool.InputSchema == nil || json.Unmarshal(text, schema) != nil {
		return nil
	}
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil
	}
	_ = json.Unmarshal(raw, &args) // parse has read it, or there is none
	if err := resolved.ApplyDefaults(&args); err != nil {
		return err
	}
	return resolved.Validate(args)
}
