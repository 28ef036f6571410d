<?php
// /etc/roundcube/config.inc.php for Roundcube 1.6 on onecopy: docs/mail-programs.md. What is not said here is as
// defaults.inc.php has it; onecopy needs none of the settings imap_vendor, imap_disabled_caps or imap_force_*.

$config = [];
include("/etc/roundcube/debian-db-roundcube.php");      // Debian: where its own database is

// Where mail is read, and where it is sent. The certificates must have these names.
$config['imap_host'] = 'ssl://mail.example.org:993';
$config['smtp_host'] = 'tls://smtp.example.org:587';
$config['smtp_user'] = '%u';
$config['smtp_pass'] = '%p';

// "alice" becomes alice@example.org in what she sends; other names are typed whole.
$config['mail_domain'] = 'example.org';

// 24 characters of your own, for the passwords in sessions: openssl rand -hex 12
$config['des_key'] = 'put 24 of your own here.';

// Sharing, archive, junk, filters.
$config['plugins'] = ['acl', 'archive', 'markasjunk', 'managesieve'];

// Filters, the answer of somebody who is away, and forwarding: pages of their own in the settings. onecopy.toml needs
// managesieve.port. A name of a mailbox in a script is in UTF-8 (RFC 5228 §2.1).
$config['managesieve_host'] = 'tls://mail.example.org:4190';
$config['managesieve_vacation'] = 1;
$config['managesieve_forward'] = 1;
$config['managesieve_mbox_encoding'] = 'UTF-8';

// onecopy tells which mailbox is for what (RFC 6154); these are for a store that makes none at the first login.
$config['drafts_mbox'] = 'Drafts';
$config['sent_mbox'] = 'Sent';
$config['junk_mbox'] = 'Junk';
$config['trash_mbox'] = 'Trash';
$config['archive_mbox'] = 'Archive';
$config['create_default_folders'] = true;

// Without a limit there is no quota, and none is shown.
$config['quota_zero_as_unlimited'] = true;
