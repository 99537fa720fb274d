// server/store/page_token.h: page tokens, which say where a listing continues. A token is signed
// with a key of the store, so that modified, foreign or forged tokens are refused, as are tokens
// used with another query.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

/// `query` is a text of all parameters that must stay the same from page to page. `cursor` is the
/// position after which the next page begins.
std::string make_page_token(std::string_view key, std::string_view query, int64_t cursor);
/// Returns the cursor of a token. Error: INVALID_ARGUMENT/PAGE_TOKEN_INVALID.
Result<int64_t> read_page_token(std::string_view key, std::string_view query,
                                std::string_view token);

/// The same for lists that are ordered by names, of which `cursor` is one: letters, digits and
/// . _ - @ : / only.
std::string make_named_page_token(std::string_view key, std::string_view query,
                                  std::string_view cursor);
/// Error: INVALID_ARGUMENT/PAGE_TOKEN_INVALID.
Result<std::string> read_named_page_token(std::string_view key, std::string_view query,
                                          std::string_view token);

/// Returns the page size for a requested one: 0 selects the default, and a value above kPageSizeMax
/// is reduced to it. Error: INVALID_ARGUMENT/PAGE_SIZE_NEGATIVE.
Result<int64_t> page_size_of(int32_t requested);

}  // namespace trainyard::server
