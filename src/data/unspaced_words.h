// src/data/unspaced_words.h: finds words of scripts that put no spaces between words.
#pragma once

#include <optional>
#include <string_view>

#include "src/data/schema.h"
#include "src/data/typed_rows.h"

namespace trainyard {

inline constexpr std::string_view kWordsWithoutSpaces = "WORDS_WITHOUT_SPACES";

/// Returns the warning kWordsWithoutSpaces if at least a fifth of the words in these rows are
/// single characters of such a script. nullopt for other tokenizers than word.
std::optional<DataWarning> find_unspaced_words(const TextSchema& text, const TypedRows& rows);

}  // namespace trainyard
