# What a user of mail may have: lists, colleagues, mail by programs. The load generator's messages come from four
# domains, one of them corp.example; so a fourth of them is filed into Work, a few into Tickets, the others are kept.
require ["fileinto", "envelope", "imap4flags"];

if header :contains "list-id" "<dev.example.org>" {
    fileinto "Lists";
    stop;
}
if anyof (header :contains "list-id" "announce", header :contains ["to", "cc"] "announce@example.org") {
    fileinto "Lists";
    stop;
}
if address :is "from" ["boss@example.org", "chief@example.org"] {
    addflag "\\Flagged";
}
if allof (address :domain :is "from" "corp.example", not header :contains "subject" "newsletter") {
    fileinto "Work";
    stop;
}
if header :matches "subject" ["*[ticket #*", "*invoice*"] {
    fileinto "Tickets";
    stop;
}
if header :contains "x-spam-flag" "yes" {
    fileinto "Junk";
    stop;
}
if envelope :domain :is "from" "shop.example" {
    addflag "shopping";
}
if size :over 5M {
    fileinto "Large";
    stop;
}
if address :localpart :contains ["to", "cc"] "sales" {
    fileinto "Work";
    stop;
}
if exists ["x-mailer-campaign", "precedence"] {
    fileinto "Bulk";
    stop;
}
