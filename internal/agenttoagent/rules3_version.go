package agenttoagent

// emptyIsOurs is why a Picket server is not held against 3.6.2/empty.
const emptyIsOurs = "Picket deviates on purpose: it answers an empty A2A-Version as 1.0, because it has no 0.3"

// Section 3.6.2: versions.
var versionChecks = checks{
	"3.6.2/supported": each(func(c caller) { c.gets("ListTasks", fields{}) }),
	"3.6.2/unsupported": each(func(c caller) {
		c.speaking("99.0").refuses("ListTasks", fields{}, wrongVersion)
	}),
	"3.6.2/unsupported-send": each(func(c caller) {
		c.speaking("99.0").refuses("SendMessage", atOnce(c.message("tck-complete-task")), wrongVersion)
	}),
	"3.6.2/unsupported-stream": each(func(c caller) {
		s := c.speaking("99.0").open("SendStreamingMessage", fields{"message": c.message("tck-stream-001")})
		c.Assert(s.failed != nil, s.answer, "%s, and not a stream", wrongVersion.name)
		c.refused(s.reply, wrongVersion)
	}),
	"3.6.2/parameter": each(func(c caller) {
		r := c.speaking("").request("GetTask", fields{"id": c.ID("no-such-task")})
		r.URL += "?A2A-Version=99.0"
		c.refused(c.decode(c.Send(r)), wrongVersion)
	}),
	"3.6.2/empty": each(func(c caller) {
		for _, i := range list(c.s.card, "supportedInterfaces") {
			if text(i, "protocolVersion") == "0.3" {
				c.NotRun("the card offers version 0.3, which an empty value stands for")
			}
		}
		r := c.speaking("").do("ListTasks", fields{})
		if r.failed == nil && c.s.missing[needPicket] == "" {
			c.NotRun(emptyIsOurs)
		}
		c.refused(r, wrongVersion)
	}),
	"3.6/patch": each(func(c caller) {
		c.ok(c.speaking("1.0.7").do("ListTasks", fields{}))
	}),
	"3.6/card": func(t *Trial) {
		for _, i := range list(t.s.card, "supportedInterfaces") {
			t.holds("protocolVersion as Major.Minor", majorMinor.MatchString(text(i, "protocolVersion")))
		}
	},
}
