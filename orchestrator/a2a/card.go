package a2a

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// flatCardType is the media type of the card of RFC-001.
const flatCardType = "application/vnd.picket.agent-card+json"

// extensionURI names the object of RFC-001 among the extensions of a card.
const extensionURI = "urn:picket:rfc-001:agent-card"

// cardMaxAge is how long a client may use a card without asking, in seconds.
const cardMaxAge = 300

// keyScheme is the security scheme of all endpoints.
const keyScheme = "apiKey"

// flatCard is the card of RFC-001.
type flatCard struct {
	AgentID      string            `json:"agentId"`
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Protocol     string            `json:"protocol"`
	Capabilities []string          `json:"capabilities"`
	Provider     string            `json:"provider"`
	SandboxLevel int               `json:"sandboxLevel"`
	CostModel    costModel         `json:"costModel"`
	Endpoints    map[string]string `json:"endpoints"`
}

// costModel says how the costs of a task come to be known.
type costModel struct {
	Type         string `json:"type"`                   // metered or self-reported
	Provider     string `json:"provider,omitempty"`     // the vendor of the models, if metered
	PriceVersion string `json:"priceVersion,omitempty"` // the price list in force, if metered
}

// serveCard answers the card: that of A2A, or the flat one of RFC-001 to a client that asks for it.
func serveCard(x *exchange) error {
	if x.lost != nil {
		return x.lost
	}
	skills, err := x.skills(x.Request().Context())
	if err != nil {
		return err
	}
	card := forClient(x.Request(), x.card(skills))
	kind := echo.MIMEApplicationJSON
	if !x.anonymous && web.Accepts(x.Request(), flatCardType) {
		card, kind = x.flatCard(skills), flatCardType
	}
	raw, err := stdjson.Marshal(card)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	h := x.Response().Header()
	h.Set("ETag", tag)
	h.Set(echo.HeaderCacheControl, fmt.Sprintf("%s, max-age=%d", x.cardVisibility(), cardMaxAge))
	h.Add(echo.HeaderVary, "Accept, Authorization, User-Agent, X-API-Key")
	if slices.Contains(strings.Split(strings.ReplaceAll(x.Request().Header.Get("If-None-Match"), " ", ""), ","), tag) {
		return x.NoContent(http.StatusNotModified)
	}
	return x.Blob(http.StatusOK, kind, raw)
}

// cardVisibility says who may keep a card.
func (x *exchange) cardVisibility() string {
	if x.anonymous {
		return "public"
	}
	return "private"
}

// extendedCard is the card that a client with a key gets. It tells more only where cards are public.
func (x *exchange) extendedCard(ctx context.Context) (any, error) {
	if !x.server.cfg.PublicCards {
		return nil, unsupported("the card needs a key already, so there is no extended one")
	}
	skills, err := x.skills(ctx)
	if err != nil {
		return nil, err
	}
	return forClient(x.Request(), x.card(skills)), nil
}

// card is the card of the endpoint. Without a key it has the name, the description, the skills, and how to
// authenticate.
func (x *exchange) card(skills []protocol.AgentSkill) *protocol.AgentCard {
	text := x.cardText()
	url := x.base() + "/a2a"
	card := &protocol.AgentCard{
		Name:        text.Name,
		Description: text.Description,
		Version:     x.server.cfg.Version,
		SupportedInterfaces: []*protocol.AgentInterface{
			protocol.NewAgentInterface(url, protocol.TransportProtocolJSONRPC),
			protocol.NewAgentInterface(url, protocol.TransportProtocolHTTPJSON),
		},
		Capabilities: protocol.AgentCapabilities{Streaming: true, PushNotifications: x.checkPushOffered() == nil,
			ExtendedAgentCard: x.server.cfg.PublicCards},
		DefaultInputModes:  defaultModes,
		DefaultOutputModes: defaultModes,
		Skills:             skills,
		SecuritySchemes: protocol.NamedSecuritySchemes{keyScheme: protocol.APIKeySecurityScheme{
			Location:    protocol.APIKeySecuritySchemeLocationHeader,
			Name:        "X-API-Key",
			Description: "An API key of Picket with the scope client. It may be sent as a bearer token, too.",
		}},
		SecurityRequirements: protocol.SecurityRequirementsOptions{{keyScheme: {}}},
	}
	if x.anonymous {
		return card
	}
	card.DocumentationURL, card.IconURL = text.DocumentationURL, text.IconURL
	if text.Organization != "" {
		card.Provider = &protocol.AgentProvider{Org: text.Organization, URL: text.OrganizationURL}
	}
	card.Capabilities.Extensions = []protocol.AgentExtension{{
		URI:         extensionURI,
		Description: "The agent card of RFC-001.",
		Params:      x.flatCard(skills).params(),
	}}
	return card
}

// cardText is what people have written for the card, with defaults.
func (x *exchange) cardText() CardText {
	if x.pool == nil {
		return CardText{Name: "Picket", Description: "Runs tasks on pools of agents. Each skill is a pool."}
	}
	text := x.pool.Card
	text.Name = cmp.Or(text.Name, x.pool.Role)
	if x.instance != nil {
		text.Name = x.instanceName(text.Name)
	}
	text.Description = cmp.Or(text.Description, "The pool of agents with the role "+x.pool.Role+".")
	return text
}

// skills are those of the endpoint. Those of the orchestrator are the pools, and those of a pool are capabilities: what
// the settings name, and what agents offer that live. Which agents there are is not public. A pool without any has one
// skill, its role.
func (x *exchange) skills(ctx context.Context) ([]protocol.AgentSkill, error) {
	if x.pool == nil {
		return x.poolSkills(), nil
	}
	tags, err := x.capabilities(ctx)
	if err != nil {
		return nil, err
	}
	if len(tags) == 0 {
		text := x.cardText()
		return []protocol.AgentSkill{{ID: x.pool.Role, Name: text.Name, Description: text.Description,
			Tags: []string{x.pool.Role}}}, nil
	}
	var list []protocol.AgentSkill
	for _, tag := range tags {
		s := x.pool.Skills[tag]
		list = append(list, protocol.AgentSkill{
			ID:          tag,
			Name:        cmp.Or(s.Name, tag),
			Description: cmp.Or(s.Description, "The capability "+tag+"."),
			Tags:        []string{tag},
			Examples:    s.Examples,
			InputModes:  s.InputModes,
			OutputModes: s.OutputModes,
		})
	}
	return list, nil
}

// poolSkills has a skill for each pool that the caller may use.
func (x *exchange) poolSkills() []protocol.AgentSkill {
	list := []protocol.AgentSkill{}
	for _, p := range x.usablePools() {
		of := exchange{server: x.server, pool: p}
		list = append(list, protocol.AgentSkill{ID: p.Role, Name: of.cardText().Name,
			Description: of.cardText().Description, Tags: []string{p.Role}})
	}
	return list
}

// capabilities are those of the pool or of the instance, in order.
func (x *exchange) capabilities(ctx context.Context) ([]string, error) {
	if x.instance != nil {
		return slices.Sorted(slices.Values(x.instance.Capabilities)), nil
	}
	tags := slices.Collect(maps.Keys(x.pool.Skills))
	if !x.anonymous {
		pools, err := x.engine.Pools(ctx, x.pool.Role, "")
		if err != nil {
			return nil, err
		}
		for _, p := range pools {
			tags = append(tags, p.Capabilities...)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags), nil
}

// flatCard is the card of RFC-001.
func (x *exchange) flatCard(skills []protocol.AgentSkill) flatCard {
	id := "picket"
	if x.pool != nil {
		id = x.pool.Role
	}
	if x.instance != nil {
		id = fmt.Sprintf("%s/%d", x.instance.AgentID, x.instance.Incarnation)
	}
	capabilities := []string{}
	for _, s := range skills {
		capabilities = append(capabilities, s.ID)
	}
	path := "/a2a"
	return flatCard{
		AgentID:      id,
		Name:         x.cardText().Name,
		Version:      x.server.cfg.Version,
		Protocol:     "a2a",
		Capabilities: capabilities,
		Provider:     x.provider(),
		SandboxLevel: x.sandboxLevel(),
		CostModel:    x.costModel(),
		Endpoints: map[string]string{"submitTask": path + "/tasks", "sendMessage": path + "/messages",
			"health": path + "/health"},
	}
}

func (x *exchange) provider() string {
	if x.pool == nil {
		return "picket"
	}
	return cmp.Or(x.pool.Provider, "picket")
}

func (x *exchange) costModel() costModel {
	if x.pool == nil || x.pool.Vendor == "" {
		return costModel{Type: "self-reported"}
	}
	return costModel{Type: "metered", Provider: x.pool.Vendor, PriceVersion: x.server.cfg.PriceVersion()}
}

// sandboxLevels are the levels of RFC-001 for the ways to hold the processes of an agent together.
var sandboxLevels = map[string]int{
	picket.ContainmentGroup:     1,
	picket.ContainmentSubreaper: 2,
	picket.ContainmentCgroup:    3,
}

// sandboxLevel is how the adapter of the instance holds its processes, as it said when it registered. It is 0, which
// stands for nothing known, at the endpoint of a pool: its agents can differ.
func (x *exchange) sandboxLevel() int {
	if x.instance == nil {
		return 0
	}
	var about struct {
		Containment string `json:"containment"`
	}
	if stdjson.Unmarshal(x.instance.Metadata, &about) != nil {
		return 0
	}
	return sandboxLevels[about.Containment]
}

// params is the card as the parameters of an extension.
func (c flatCard) params() map[string]any {
	return map[string]any{
		"agentId":      c.AgentID,
		"name":         c.Name,
		"version":      c.Version,
		"protocol":     c.Protocol,
		"capabilities": c.Capabilities,
		"provider":     c.Provider,
		"sandboxLevel": c.SandboxLevel,
		"costModel":    c.CostModel,
		"endpoints":    c.Endpoints,
	}
}
