package agenttoagent

// Sections 4.4 and 8: the card.
var cardChecks = checks{
	"4.4.1/name": func(t *Trial) { t.holds("a name", text(t.s.card, "name") != "") },
}
