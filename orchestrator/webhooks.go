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

	"github.com/go-json-experiment/json"
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

// PutPushConfig creates or replaces a push configuration of a task of a client, for the client or an operator. It is
// told what happens from then on. That of a task that has ended is told nothing. One that replaces another goes on
// where that one was. The result has no secrets.
func (e *Engine) PutPushConfig(ctx context.Context, by picket.Caller, c picket.PushConfig) (picket.PushConfig, error) {
	fields, err := e.pushArgs(c.TaskID, &c)
	if err == nil {
		err = picket.CheckID("taskId", "task", c.TaskID)
	}
	args := slices.Concat([]any{c.TaskID}, fields, e.pushCaller(by),
		[]any{picket.MaxTaskPushes, picket.MaxClientPushes})
	r := e.runChecked(ctx, err, "push_put", args...)
	var v pushView
	r.Decode(&v)
	return e.pushConfig(v), r.Err
}

// PushConfigs lists the push configurations of a task, oldest first, without their secrets.
func (e *Engine) PushConfigs(ctx context.Context, by picket.Caller, taskID string) ([]picket.PushConfig, error) {
	return e.listPushConfigs(ctx, by, taskID, "")
}

// PushConfig shows one push configuration of a task, without its secrets.
func (e *Engine) PushConfig(ctx context.Context, by picket.Caller, taskID, id string) (picket.PushConfig, error) {
	if err := picket.CheckPushID(id); err != nil {
		return picket.PushConfig{}, err
	}
	list, err := e.listPushConfigs(ctx, by, taskID, id)
	if err != nil || len(list) == 0 { // the script refuses when there is none
		return picket.PushConfig{}, err
	}
	return list[0], nil
}

func (e *Engine) listPushConfigs(ctx context.Context, by picket.Caller, taskID, id string) ([]picket.PushConfig,
	error) {
	args := append([]any{taskID, id}, e.pushCaller(by)...)
	r := e.runChecked(ctx, picket.CheckID("taskId", "task", taskID), "push_list", args...)
	var views []pushView
	r.Decode(&views)
	list := make([]picket.PushConfig, len(views))
	for i, v := range views {
		list[i] = e.pushConfig(v)
	}
	return list, r.Err
}

// DeletePushConfig deletes a push configuration of a task. One that does not exist is deleted already.
func (e *Engine) DeletePushConfig(ctx context.Context, by picket.Caller, taskID, id string) error {
	args := append([]any{taskID, id}, e.pushCaller(by)...)
	err := cmp.Or(picket.CheckID("taskId", "task", taskID), picket.CheckPushID(id))
	return e.runChecked(ctx, err, "push_delete", args...).Err
}

// TakePushTurn waits until a push configuration has something to send, and gives it to a deliverer exclusively until
// picket.PushTurnTTL is over. The deliverer chooses claimID. After a lost reply, the same claimID gets the same
// configuration. The turn has no ID if the wait ran out first.
func (e *Engine) TakePushTurn(ctx context.Context, claimID string, wait time.Duration) (picket.PushTurn, error) {
	var c pushClaim
	var asked time.Time
	_, err := e.records.WaitUntil(ctx, e.records.Subscribe(pushTopic), wait,
		func() (done bool, again time.Duration, err error) {
			c, asked = pushClaim{}, time.Now()
			r := e.run(ctx, "push_claim", claimID, picket.PushTurnTTL.Milliseconds(), maxPushUpdates)
			r.Decode(&c)
			return c.Push != nil, time.Duration(c.Wait) * time.Millisecond, r.Err
		})
	if err != nil || c.Push == nil {
		return picket.PushTurn{TurnID: claimID}, err
	}
	turn := e.pushTurn(claimID, c)
	turn.HeldSince = asked
	return turn, nil
}

// AdvancePush records how far a push configuration was served. state_conflict means that the claim is over, and
// not_found that the configuration was deleted.
func (e *Engine) AdvancePush(ctx context.Context, s picket.PushStep) (picket.PushState, error) {
	r := e.run(ctx, "push_advance", s.TaskID, s.ID, s.TurnID, strconv.FormatInt(s.From, 10),
		strconv.FormatInt(s.To, 10), string(s.Outcome), s.Delay.Milliseconds(), picket.PushTurnTTL.Milliseconds())
	return picket.PushState(r.Text(r.Value)), r.Err
}

// maxPushUpdates is how many updates a claim gives.
const maxPushUpdates = 100

// pushTopic tells that a push configuration has something to send.
const pushTopic store.Topic = "push"

// pushCaller is a caller as the scripts check who may see a task.
func (e *Engine) pushCaller(by picket.Caller) []any {
	if by.Operator {
		return []any{by.Key, 1}
	}
	return []any{by.Key, 0}
}

// pushArgs is a push configuration as pushes.read reads it. It is checked first; nil stands for none.
func (e *Engine) pushArgs(taskID string, c *picket.PushConfig) ([]any, error) {
	if c == nil {
		return []any{"", "", "", "", "", ""}, nil
	}
	if err := c.Normalize(); err != nil {
		return nil, err
	}
	sealed := map[string]string{}
	for part, secret := range map[string]picket.Secret{"url": c.URL, "token": c.Token, "credentials": c.Credentials} {
		if secret == "" {
			continue
		}
		var err error
		if sealed[part], err = e.store.cfg.Sealer.Encrypt(e.pushSealContext(taskID, c.ID, part), secret); err != nil {
			return nil, err
		}
	}
	return []any{c.ID, "push_" + ulid.Make().String(), sealed["url"], sealed["token"], c.Scheme,
		sealed["credentials"]}, nil
}

// pushSealContext is what a part of a push configuration is sealed for.
func (e *Engine) pushSealContext(taskID, id, part string) string {
	return "push " + e.namespace + " " + taskID + " " + id + " " + part
}

// pushView is what the script function pushes.view shows.
type pushView struct {
	Task   string            `reply:"task"`
	ID     string            `reply:"id"`
	Record map[string]string `reply:"record"`
}

// pushConfig is a configuration without its secrets. The URL stays empty if it was sealed with a key that is not here.
func (e *Engine) pushConfig(v pushView) picket.PushConfig {
	c := picket.PushConfig{TaskID: v.Task, ID: v.ID, Scheme: v.Record["scheme"]}
	c.URL, _ = e.unsealPush(v, "url")
	return c
}

// unsealPush opens a part of a configuration. One that was not given is empty.
func (e *Engine) unsealPush(v pushView, part string) (picket.Secret, error) {
	if v.Record[part] == "" {
		return "", nil
	}
	return e.store.cfg.Sealer.Decrypt(e.pushSealContext(v.Task, v.ID, part), v.Record[part])
}

// pushClaim is what the script push_claim answers.
type pushClaim struct {
	Wait    int64            `reply:"wait"` // ms until a configuration is due
	Client  string           `reply:"client"`
	Push    *pushView        `reply:"push"`
	Updates []pushUpdateView `reply:"updates"`
}

type pushUpdateView struct {
	Kind        string `reply:"kind"`
	Seq         int64  `reply:"seq"`
	From        string `reply:"from"`
	To          string `reply:"to"`
	At          int64  `reply:"at"` // ms
	Handoff     string `reply:"handoff"`
	HandoffKind string `reply:"handoff_kind"`
	Body        string `reply:"body"`
}

// pushTurn is a claim with the secrets of its configuration.
func (e *Engine) pushTurn(claimID string, c pushClaim) picket.PushTurn {
	v := *c.Push
	turn := picket.PushTurn{
		PushConfig: e.pushConfig(v),
		TurnID:     claimID,
		Client:     c.Client,
		Name:       v.Record["name"],
		Cursor:     store.ParseInt(v.Record["cursor"]),
		Failures:   int(store.ParseInt(v.Record["failures"])),
	}
	var errToken, errCredentials error
	turn.Token, errToken = e.unsealPush(v, "token")
	turn.Credentials, errCredentials = e.unsealPush(v, "credentials")
	turn.Sealed = turn.URL == "" || errToken != nil || errCredentials != nil
	for i, u := range c.Updates {
		turn.Updates = append(turn.Updates, u.update(turn.Cursor+int64(i)+1))
	}
	return turn
}

func (v pushUpdateView) update(seq int64) picket.TaskUpdate {
	u := picket.TaskUpdate{
		Seq:      seq,
		Emission: v.Seq,
		Result:   v.Kind == "result",
		From:     picket.TaskState(v.From),
		To:       picket.TaskState(v.To),
		At:       picket.Instant(v.At),
	}
	if v.Handoff == "" {
		return u
	}
	u.Handoff = &picket.Handoff{HandoffID: v.Handoff, Kind: picket.HandoffKind(v.HandoffKind)}
	var body struct {
		Question string   `json:"question"`
		Options  []string `json:"options"`
	}
	if json.Unmarshal([]byte(v.Body), &body) == nil { // what our own script has written
		u.Handoff.Question, u.Handoff.Options = body.Question, body.Options
	}
	return u
}
