package orchestrator

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
	"github.com/picket-dev/picket/orchestrator/store"
)

// maxTargetURL bounds the URL of a webhook, in bytes.
const maxTargetURL = 2048

// CreateWebhook records a target; it is sent what happens from then on. Its
// secret is shown only here; a repeat of the same request is shown the same one.
func (e *Engine) CreateWebhook(ctx context.Context, by picket.Caller,
	spec picket.WebhookSpec) (picket.NewWebhook, error) {
	return e.createWebhook(ctx, by, spec, "")
}

// CreatedWebhook returns what the same request has made before, and creates nothing.
// It is for a repeated request whose target may not be called any more. It is
// [picket.CodeNotFound] if the request has made none.
func (e *Engine) CreatedWebhook(ctx context.Context, by picket.Caller,
	spec picket.WebhookSpec) (picket.NewWebhook, error) {
	return e.createWebhook(ctx, by, spec, "1")
}

func (e *Engine) createWebhook(ctx context.Context, by picket.Caller, spec picket.WebhookSpec,
	look string) (picket.NewWebhook, error) {
	target, err := checkWebhook(&spec)
	if err != nil {
		return picket.NewWebhook{}, err
	}
	id := "webhook_" + ulid.Make().String()
	sealedURL, err := e.store.cfg.Sealer.Encrypt(e.sealContext(id, "url"), spec.URL)
	if err != nil {
		return picket.NewWebhook{}, err
	}
	secret := picket.Secret(picket.WebhookSecretPrefix + base64.StdEncoding.EncodeToString(randomSecret()))
	sealedSecret, err := e.store.cfg.Sealer.Encrypt(e.sealContext(id, "secret"), secret)
	if err != nil {
		return picket.NewWebhook{}, err
	}
	r := e.run(ctx, "webhook_create", id, spec.Name, redactedURL(target), sealedURL, sealedSecret,
		strings.Join(spec.Types, ","),
		string(spec.Format), by.Actor, picket.MaxWebhooks, by.Idempotency.Key, by.Idempotency.Body, look)
	var v webhookView
	if r.Decode(&v); r.Err != nil {
		return picket.NewWebhook{}, r.Err
	}
	t := e.unsealTarget(v)
	if t.Secret == "" {
		err = picket.Refuse(picket.CodeStateConflict, "Delete the webhook and make another.",
			"the secret of the webhook that this request made cannot be shown again: its key is not here any more")
	}
	return picket.NewWebhook{Webhook: t.Webhook, Secret: t.Secret}, err
}

// checkWebhook fills in the defaults. Whether the address may be called is checked
// where calls are made.
func checkWebhook(spec *picket.WebhookSpec) (*url.URL, error) {
	spec.Format = cmp.Or(spec.Format, picket.WebhookStandard)
	target, err := url.Parse(spec.URL.Reveal())
	switch {
	case len(spec.URL) > maxTargetURL:
		return nil, picket.Invalid("/url", "Send a shorter URL.", "the URL has more than %d bytes", maxTargetURL)
	case err != nil || (target.Scheme != "https" && target.Scheme != "http") || target.Hostname() == "":
		return nil, picket.Invalid("/url", "Send an absolute https or http URL.", "url is not the URL of a web server")
	case target.User != nil:
		return nil, picket.Invalid("/url", "Leave them out: requests are signed.",
			"the URL holds a user name or a password")
	case target.Fragment != "":
		return nil, picket.Invalid("/url", "Leave out what follows #: it is not sent.", "the URL has a fragment")
	case !slices.Contains(picket.WebhookFormats, spec.Format):
		return nil, picket.Invalid("/format", "Send standard or slack.", "%.64q is not a format", spec.Format)
	}
	for i, kind := range spec.Types {
		if !slices.Contains(picket.EventTypes, kind) {
			return nil, picket.Invalid("/types/"+strconv.Itoa(i),
				"Send types of events, or none for the notices that matter to people.", "%.64q is not a type of event", kind)
		}
	}
	slices.Sort(spec.Types)
	spec.Types = slices.Compact(spec.Types)
	spec.Name = cmp.Or(strings.TrimSpace(spec.Name), target.Hostname())
	if len(spec.Name) > 128 {
		return nil, picket.Invalid("/name", "Send at most 128 bytes.", "name has %d bytes", len(spec.Name))
	}
	return target, nil
}

// redactedURL is as much of a URL as everybody may see.
func redactedURL(u *url.URL) string {
	shown := u.Scheme + "://" + u.Host
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		shown += "/…"
	}
	return shown
}

// sealContext is what a part of a webhook is sealed for.
func (e *Engine) sealContext(id, part string) string {
	return "webhook " + e.namespace + " " + id + " " + part
}

// Webhooks lists the targets by id, oldest first.
func (e *Engine) Webhooks(ctx context.Context) ([]picket.Webhook, error) {
	r := e.run(ctx, "webhook_list", "all")
	var views []webhookView
	r.Decode(&views)
	out := make([]picket.Webhook, len(views))
	for i, v := range views {
		out[i] = v.webhook()
	}
	slices.SortFunc(out, func(a, b picket.Webhook) int { return cmp.Compare(a.WebhookID, b.WebhookID) })
	return out, r.Err
}

// Webhook shows one target.
func (e *Engine) Webhook(ctx context.Context, id string) (picket.Webhook, error) {
	t, err := e.WebhookTarget(ctx, id)
	return t.Webhook, err
}

// WebhookTarget is a target with its secrets, for the deliverer.
func (e *Engine) WebhookTarget(ctx context.Context, id string) (picket.WebhookTarget, error) {
	r := e.runChecked(ctx, picket.CheckID("webhookId", "webhook", id), "webhook_list", id)
	var views []webhookView
	if r.Decode(&views); r.Err != nil || len(views) == 0 { // the script refuses when there is none
		return picket.WebhookTarget{}, r.Err
	}
	return e.unsealTarget(views[0]), nil
}

// DeleteWebhook forgets a target and answers what it was.
func (e *Engine) DeleteWebhook(ctx context.Context, by picket.Caller, id string) (picket.Webhook, error) {
	return e.changeWebhook(ctx, "webhook_delete", by, id)
}

// ReviveWebhook lets a target that is dead or off be sent what it has missed,
// as far as retention has left it.
func (e *Engine) ReviveWebhook(ctx context.Context, by picket.Caller, id string) (picket.Webhook, error) {
	return e.changeWebhook(ctx, "webhook_revive", by, id)
}

func (e *Engine) changeWebhook(ctx context.Context, script string, by picket.Caller,
	id string) (picket.Webhook, error) {
	r := e.runChecked(ctx, picket.CheckID("webhookId", "webhook", id), script, id, by.Actor, by.Idempotency.Key,
		by.Idempotency.Body)
	var v webhookView
	r.Decode(&v)
	return v.webhook(), r.Err
}

// TakeWebhookTurn gives a deliverer a target that has something to send, exclusively until
// picket.WebhookTurnTTL is over. The deliverer chooses claimID. After a lost reply, the same claimID
// gets the same target.
func (e *Engine) TakeWebhookTurn(ctx context.Context, claimID string) (picket.WebhookTurn, error) {
	r := e.run(ctx, "webhook_claim", claimID, picket.WebhookTurnTTL.Milliseconds())
	var c struct {
		Seq     int64        `reply:"seq"`
		Wait    int64        `reply:"wait"` // ms until a target is due
		Webhook *webhookView `reply:"webhook"`
	}
	r.Decode(&c)
	turn := picket.WebhookTurn{TurnID: claimID, Seq: c.Seq, Wait: time.Duration(c.Wait) * time.Millisecond}
	if r.Err != nil || c.Webhook == nil {
		return turn, r.Err
	}
	turn.WebhookTarget = e.unsealTarget(*c.Webhook)
	return turn, nil
}

// AdvanceWebhook records how far a target was served, and returns its failures and state.
// state_conflict means that the claim is over: another deliverer has the target, or none.
func (e *Engine) AdvanceWebhook(ctx context.Context, s picket.WebhookStep) (picket.WebhookState, error) {
	r := e.run(ctx, "webhook_advance", s.WebhookID, s.TurnID, strconv.FormatInt(s.From, 10),
		strconv.FormatInt(s.To, 10), string(s.Outcome), s.Status, text.ValidHead(s.Error, 200), s.Delay.Milliseconds(),
		picket.WebhookTurnTTL.Milliseconds())
	return picket.WebhookState(r.Text(r.Value)), r.Err
}

// unsealTarget opens what a record holds sealed. What another key has sealed stays
// empty, and the one that posts to the target reports it.
func (e *Engine) unsealTarget(v webhookView) picket.WebhookTarget {
	t := picket.WebhookTarget{Webhook: v.webhook()}
	address, errURL := e.store.cfg.Sealer.Decrypt(e.sealContext(v.ID, "url"), v.Record["url"])
	secret, errSecret := e.store.cfg.Sealer.Decrypt(e.sealContext(v.ID, "secret"), v.Record["secret"])
	if errURL == nil && errSecret == nil {
		t.Target, t.Secret = address, secret
	}
	return t
}

// webhookView is what the script function webhook_view shows. Times are ms.
type webhookView struct {
	ID     string            `reply:"id"`
	Raw    int64             `reply:"raw"` // the server's own clock
	Now    int64             `reply:"now"` // store time
	Due    int64             `reply:"due"`
	Record map[string]string `reply:"record"`
}

func (v webhookView) webhook() picket.Webhook {
	h := v.Record
	w := picket.Webhook{
		WebhookID:  v.ID,
		Name:       h["name"],
		URL:        h["shown"],
		Types:      []string{},
		Format:     picket.WebhookFormat(h["format"]),
		State:      picket.WebhookState(h["state"]),
		Cursor:     h["cursor"],
		Failures:   int(store.ParseInt(h["failures"])),
		LastStatus: int(store.ParseInt(h["status"])),
		LastError:  h["error"],
		CreatedAt:  picket.Instant(store.ParseInt(h["created"])),
		CreatedBy:  h["by"],
	}
	if h["types"] != "" {
		w.Types = strings.Split(h["types"], ",")
	}
	if w.State == picket.WebhookActive && w.Failures > 0 && h["claim"] == "" && v.Due > 0 {
		w.NextAttemptAt = picket.Instant(v.Raw + max(v.Due-v.Now, 0))
	}
	return w
}
