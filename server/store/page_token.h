// server/store/page_token.h: where a listing continues. The token is signed with a key of the
// store, so that modified, foreign or forged tokens are refused, as are tokens used with another
// query.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

/// `query` is everything that must stay the same from page to page, as text.
std::string make_page_token(std::string_view key, std::string_view query, int64_t cursor);
/// INVALID_ARGUMENT/PAGE_TOKEN_INVALID.
Result<int64_t> read_page_token(std::string_view key, std::string_view query,
                                std::string_view token);

/// The size of a page from a request: 0 is the default, more than kPageSizeMax is coerced.
/// INVALID_ARGUMENT/PAGE_SIZE_NEGATIVE.
Result<int64_t> page_size_of(int32_t requested);

}  // namespace trainyard::server
