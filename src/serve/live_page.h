// The page at which a server is asked and watched in a browser.
#pragma once

#include <string>

#include "serve/http_server.h"

namespace sluice {

// One document without parts elsewhere. Its content security policy lets it run its own script, ask its own server and
// open timelines that it has made of timeline_reply(); nothing else.
HttpReply page_reply();
// The same with stored runs in it, which it plays instead: no server is asked.
HttpReply demo_page_reply();
// What a timeline is made of in the browser: the page of a trace, whose data are still to be put in.
HttpReply timeline_reply();

}  // namespace sluice
