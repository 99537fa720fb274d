// server/people/random_token.h: makes the texts of tokens.
#pragma once

#include <string>

namespace trainyard::server {

/// Returns the text of a new token (src/base/token_text.h), with 250 random bits of the kernel.
std::string random_token_text();

}  // namespace trainyard::server
