// src/data/text/word_count.h: about how many words a text has, to tell names from sentences.
#pragma once

#include <string_view>

namespace trainyard {

/// Returns the number of words in a text: what stands between blanks, and a word for every two
/// characters of scripts that put no blanks between words, such as Chinese.
double count_words(std::string_view text);

}  // namespace trainyard
