<?php
// Single sign-on, at the end of config.inc.php: the web server asks who it is (by Kerberos, OpenID Connect or a password)
// and gives the user's name in REMOTE_USER; Roundcube needs no password of the user. In onecopy.toml the user "webmail" is
// one of login.proxies, which may log in as others from the networks that login.proxy_networks names.
$config['plugins'][] = 'http_authentication';
$config['imap_auth_type'] = 'PLAIN';
$config['imap_auth_cid'] = 'webmail';
$config['imap_auth_pw'] = 'its password';
$config['managesieve_auth_type'] = 'PLAIN';
$config['managesieve_auth_cid'] = $config['imap_auth_cid'];
$config['managesieve_auth_pw'] = $config['imap_auth_pw'];
