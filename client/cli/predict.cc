// trainyard predict: sends raw rows to a trained model; the server applies its preprocessing.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/output_json.h"
#include "client/cli/row_files.h"
#include "client/lib/predict_rows.h"
#include "client/lib/upload.h"
#include "src/base/files.h"
#include "src/base/folder_files.h"
#include "src/base/text.h"
#include "src/data/table/column_match.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::PredictRequest, v1::PredictResponse> kPredict{
    "ModelService/Predict", client::Repeat::kSome, 2 * client::kMinuteMs};

struct PredictOptions {
  std::string model;
  std::string csv;
  std::string idx;
  std::string text;
  std::string npy;
  std::string jsonl;
  std::vector<std::string> images;
};

/// The requests to send and the names of their rows.
struct Rows {
  std::vector<v1::PredictRequest> requests;
  std::vector<std::string> names;  // of image files; otherwise empty, and rows are numbered
};

/// Replaces each folder by the images in it.
Result<std::vector<std::string>> image_paths(const std::vector<std::string>& given) {
  std::vector<std::string> paths;
  for (const std::string& path : given) {
    std::error_code failed;
    if (!std::filesystem::is_directory(path, failed)) {
      paths.push_back(path);
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> files, list_folder_files(path, path));
    for (const std::string& file : files) {
      if (is_image_path(file)) paths.push_back((std::filesystem::path(path) / file).string());
    }
  }
  if (!paths.empty()) return paths;
  return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND",
                    given[0] + ": there are no JPEG or PNG files (.jpg, .jpeg, .png)");
}

/// Packs as many image files into each request as fit.
Result<Rows> image_requests(const std::string& model, const std::vector<std::string>& given) {
  Rows rows;
  ASSIGN_OR_RETURN(rows.names, image_paths(given));
  size_t bytes = 0;
  for (const std::string& path : rows.names) {
    ASSIGN_OR_RETURN(std::string content, read_file(path, client::kPredictBytesMax));
    if (rows.requests.empty() || bytes + content.size() > client::kPredictBytesMax ||
        rows.requests.back().images().files_size() == client::kPredictImagesMax) {
      rows.requests.emplace_back().set_name(model);
      bytes = 0;
    }
    bytes += content.size();
    v1::ImageFiles::File& file = *rows.requests.back().mutable_images()->add_files();
    file.set_name(shown_name(path));
    file.set_content(std::move(content));
  }
  return rows;
}

Result<std::string> read_rows(const std::string& path) {
  std::string bytes;
  if (path == "-") {
    bytes.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    ASSIGN_OR_RETURN(bytes, read_file(path, client::kRowFileBytesMax));
  }
  return client::gunzip_if_compressed(std::move(bytes));
}

/// Returns whether the first row names a column of the model. Only needed if rows must be split
/// over several requests; a short file is sent unchanged.
Result<bool> has_header(client::Client& server, const std::string& model, std::string_view text) {
  ASSIGN_OR_RETURN(const v1::Model info, server.call(client::rpc::kGetModel, model));
  const auto rows = client::csv_fields(text.substr(0, text.find('\n')));
  if (rows.empty()) return false;
  std::vector<std::string> known = {info.schema().target()};
  for (const v1::DatasetSchema::Column& column : info.schema().columns()) {
    known.push_back(column.name());
  }
  return std::ranges::any_of(match_columns(rows[0], known),
                             [](size_t match) { return match != kNoColumn; });
}

Result<std::vector<v1::PredictRequest>> make_requests(client::Client& server,
                                                      const std::string& model,
                                                      const PredictOptions& options) {
  const bool text = !options.text.empty();
  const bool npy = !options.npy.empty();
  const bool jsonl = !options.jsonl.empty();
  bool csv = !options.csv.empty();
  ASSIGN_OR_RETURN(std::string bytes, read_rows(csv     ? options.csv
                                                : text  ? options.text
                                                : npy   ? options.npy
                                                : jsonl ? options.jsonl
                                                        : options.idx));
  bool header = false;
  if (npy || jsonl) {
    ASSIGN_OR_RETURN(RowText rows, npy ? rows_of_npy(bytes) : rows_of_json_lines(bytes));
    csv = !rows.idx;
    header = rows.header;
    bytes = std::move(rows.bytes);
  } else if (csv && bytes.size() > client::kPredictBytesMax) {
    ASSIGN_OR_RETURN(header, has_header(server, model, bytes));
  }
  ASSIGN_OR_RETURN(std::vector<std::string> pieces,
                   csv    ? client::split_csv(bytes, header, client::kPredictBytesMax)
                   : text ? client::split_lines(bytes, client::kPredictBytesMax)
                          : client::split_idx(bytes, client::kPredictBytesMax));
  std::vector<v1::PredictRequest> requests;
  for (std::string& piece : pieces) {
    v1::PredictRequest& request = requests.emplace_back();
    request.set_name(model);
    if (csv) {
      request.set_csv(std::move(piece));
    } else if (text) {
      request.set_text(std::move(piece));
    } else {
      request.set_idx_images(std::move(piece));
    }
  }
  return requests;
}

float probability_of(const v1::Prediction& p) {
  if (p.top_indices_size() > 0) return p.probabilities_size() > 0 ? p.probabilities(0) : 0;
  const auto index = static_cast<int>(p.label_index());
  return index >= 0 && index < p.probabilities_size() ? p.probabilities(index) : 0;
}

std::string percent(float share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f%%", 100.0 * static_cast<double>(share));
  return text;
}

// Returns the first numbers of an autoencoder's output for a row: "0.12 0.98 ...".
std::string reconstruction_text(const v1::Prediction& p, int shown) {
  std::string text;
  for (int k = 0; k < std::min(p.reconstruction_size(), shown); ++k) {
    text += (k > 0 ? " " : "") + human_number(static_cast<double>(p.reconstruction(k)));
  }
  return text + (p.reconstruction_size() > shown ? " ..." : "");
}

std::string prediction_text(const v1::PredictResponse& answer, const v1::Prediction& p) {
  if (answer.classification()) return p.label();
  if (p.reconstruction_size() > 0) return reconstruction_text(p, p.reconstruction_size());
  return human_number(p.value());
}

std::string render_table(const v1::PredictResponse& answer, const std::vector<std::string>& names,
                         bool colour) {
  const auto name_of_row = [&](int i) {
    return names.empty() ? std::to_string(i + 1) : safe_text(names[static_cast<size_t>(i)]);
  };
  const Column row{names.empty() ? "ROW" : "FILE", names.empty()};
  if (answer.predictions_size() > 0 && answer.predictions(0).reconstruction_size() > 0) {
    constexpr int kShown = 8;
    Table table({row, {"RECONSTRUCTION"}});
    for (int i = 0; i < answer.predictions_size(); ++i) {
      table.add({name_of_row(i), reconstruction_text(answer.predictions(i), kShown)});
    }
    return table.render(colour);
  }
  if (!answer.classification()) {
    Table table({row, {"PREDICTION", true}});
    for (int i = 0; i < answer.predictions_size(); ++i) {
      table.add({name_of_row(i), human_number(answer.predictions(i).value())});
    }
    return table.render(colour);
  }
  Table table({row, {"PREDICTION"}, {"PROBABILITY", true}, {"NEXT BEST"}});
  for (int i = 0; i < answer.predictions_size(); ++i) {
    const v1::Prediction& p = answer.predictions(i);
    int second = -1;
    // the response has only the most probable classes, in descending order
    const bool is_top = p.top_indices_size() > 0;
    for (int k = 0; k < p.probabilities_size(); ++k) {
      if (k == (is_top ? 0 : p.label_index())) continue;
      if (second < 0 || p.probabilities(k) > p.probabilities(second)) second = k;
    }
    std::string next;
    const auto& names_of = is_top ? p.top_labels() : answer.classes();
    if (second >= 0 && second < names_of.size()) {
      next = names_of[second] + " (" + percent(p.probabilities(second)) + ")";
    }
    const float probability = probability_of(p);
    table.add({name_of_row(i), p.label(),
               Cell(percent(probability), probability < 0.5f ? Style::kNotice : Style::kPlain),
               next});
  }
  return table.render(colour);
}

std::string render_csv(const v1::PredictResponse& answer, const std::vector<std::string>& names) {
  const int values =
      answer.predictions_size() > 0 ? answer.predictions(0).reconstruction_size() : 0;
  std::string out = names.empty() ? "row" : "file";
  if (values == 0) out += ",prediction";
  for (int k = 0; k < values; ++k) out += ",x" + std::to_string(k);
  for (const std::string& name : answer.classes()) out += "," + csv_field("p_" + name);
  // If there are very many classes, only the prediction's probability is written; -o json has the
  // next ones too.
  const bool is_top = answer.classification() && answer.classes_size() == 0;
  if (is_top) out += ",probability";
  out += "\n";
  char number[40];
  const auto append = [&](float value) {
    std::snprintf(number, sizeof number, ",%.9g", static_cast<double>(value));
    out += number;
  };
  for (int i = 0; i < answer.predictions_size(); ++i) {
    const v1::Prediction& p = answer.predictions(i);
    out += names.empty() ? std::to_string(i + 1) : csv_field(names[static_cast<size_t>(i)]);
    if (values > 0) {
      for (const float x : p.reconstruction()) append(x);
    } else if (answer.classification()) {
      out += "," + csv_field(p.label());
      if (is_top) {
        append(probability_of(p));
        out += "\n";
        continue;
      }
      for (const float share : p.probabilities()) append(share);
    } else {
      std::snprintf(number, sizeof number, ",%.17g", p.value());
      out += number;
    }
    out += "\n";
  }
  return out;
}

/// Escapes each line for a terminal: the names of classes and files come from the data.
std::string safe_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += safe_text(text.substr(0, end));
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

/// Adds to each prediction of the response its file's name, which the server does not return.
nlohmann::ordered_json with_files(const v1::PredictResponse& answer,
                                  const std::vector<std::string>& names) {
  nlohmann::ordered_json json = json_of(answer);
  for (size_t i = 0; i < names.size(); ++i) {
    nlohmann::ordered_json named = {{"file", names[i]}};
    named.update(json["predictions"][i]);
    json["predictions"][i] = std::move(named);
  }
  return json;
}

/// Prints values that training never saw on stderr; they are not an error.
void note_unseen(Session& session, const v1::PredictResponse& answer,
                 const std::vector<std::string>& names) {
  constexpr int64_t kShownMax = 5;
  if (answer.unseen_count() == 0) return;
  int64_t shown_count = 0;
  std::string text;
  for (int i = 0; i < answer.predictions_size() && shown_count < kShownMax; ++i) {
    for (const v1::UnseenCategory& unseen : answer.predictions(i).unseen()) {
      if (shown_count == kShownMax) break;
      text += (shown_count++ > 0 ? "; " : ": ") +
              (names.empty() ? "row " + std::to_string(i + 1) : names[static_cast<size_t>(i)]) +
              ", column " + quoted_value(unseen.column()) + ": " + quoted_value(unseen.value());
    }
  }
  if (shown_count < answer.unseen_count()) text += "; ...";
  session.err().line("warning: " + grouped(answer.unseen_count()) +
                     (answer.unseen_count() == 1 ? " value is a category that training"
                                                 : " values are categories that training") +
                     " never saw and count" + (answer.unseen_count() == 1 ? "s" : "") +
                     " as missing" + safe_text(text));
}

/// Prints columns that the model did not use on stderr; they are not an error.
void note_ignored(Session& session, const v1::PredictResponse& answer) {
  const int count = answer.ignored_columns_size();
  if (count == 0) return;
  const std::vector<std::string> names(answer.ignored_columns().begin(),
                                       answer.ignored_columns().end());
  session.err().line("note: " + std::string(count == 1 ? "the column " : "the columns ") +
                     list_columns(names) + (count == 1 ? " is" : " are") +
                     " ignored: the training data had no such " +
                     (count == 1 ? "column" : "columns"));
}

Result<int> run_predict(Session& session, const PredictOptions& options) {
  const int given = (options.csv.empty() ? 0 : 1) + (options.idx.empty() ? 0 : 1) +
                    (options.text.empty() ? 0 : 1) + (options.npy.empty() ? 0 : 1) +
                    (options.jsonl.empty() ? 0 : 1) + (options.images.empty() ? 0 : 1);
  if (given != 1) {
    return usage_error(
        "expected the rows: --csv FILE, --jsonl FILE, --idx FILE, --npy FILE or --text FILE (- is "
        "standard input), or --images FILE...");
  }
  ASSIGN_OR_RETURN(const std::string model, session.full_name("models", options.model));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  Rows rows;
  if (options.images.empty()) {
    ASSIGN_OR_RETURN(rows.requests, make_requests(*server, model, options));
  } else {
    ASSIGN_OR_RETURN(rows, image_requests(model, options.images));
  }
  v1::PredictResponse all;
  for (const v1::PredictRequest& request : rows.requests) {
    ASSIGN_OR_RETURN(v1::PredictResponse answer, server->call(kPredict, request));
    if (!rows.names.empty() && answer.predictions_size() != request.images().files_size()) {
      return make_error(ErrorCode::kDataLoss, "STREAM_MALFORMED",
                        "the server sent " + std::to_string(answer.predictions_size()) +
                            " predictions for " + std::to_string(request.images().files_size()) +
                            " images");
    }
    if (all.predictions_size() == 0) {
      all = std::move(answer);
      continue;
    }
    for (v1::Prediction& p : *answer.mutable_predictions()) *all.add_predictions() = std::move(p);
    all.set_warm(all.warm() && answer.warm());
    all.set_compute_us(all.compute_us() + answer.compute_us());
    all.set_unseen_count(all.unseen_count() + answer.unseen_count());
  }
  note_unseen(session, all, rows.names);
  note_ignored(session, all);
  if (session.format() == Format::kCsv) {
    const std::string csv = render_csv(all, rows.names);
    session.out().write(session.out().is_terminal() ? safe_lines(csv) : csv);
    return static_cast<int>(client::kExitOk);
  }
  std::vector<std::string> labels;
  for (const v1::Prediction& p : all.predictions()) {
    labels.push_back(prediction_text(all, p));
  }
  if (session.format() == Format::kName) {
    for (const std::string& label : labels) session.out().line(safe_text(label));
  } else if (session.machine() && !rows.names.empty()) {
    session.out().line(text_of(with_files(all, rows.names), session.format()));
  } else {
    session.show(all, [&] { return render_table(all, rows.names, session.out().colour()); }, {});
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command predict_command() {
  auto o = std::make_shared<PredictOptions>();
  return {"predict",
          "Predict raw rows with a trained model",
          {"trainyard predict digits-1 --csv rows.csv",
           "head -5 rows.csv | trainyard predict digits-1 --csv -",
           "echo 'Stocks fall after rate decision' | trainyard predict news --text -",
           "trainyard predict pets --images photos/*.jpg",
           "trainyard predict mnist-lenet --idx t10k-images-idx3-ubyte.gz -o csv > answers.csv"},
          "CSV rows contain the feature columns: in any order with a header, in the training "
          "data's order without one.\nOther columns are ignored. Long files are sent in pieces. -o "
          "csv prints a probability "
          "for each class, -o name only the predictions, one\nper line. An autoencoder returns "
          "each row as numbers: -o csv prints them all.",
          [o](OptionSet& options) {
            options.positional("MODEL", o->model, "the model's name, which is its job's");
            options.text("--csv", "FILE", o->csv, "CSV rows, plain or gzip; - is standard input");
            options.text("--idx", "FILE", o->idx, "IDX images, plain or gzip; - is standard input");
            options.text("--jsonl", "FILE", o->jsonl,
                         "rows as JSON objects, one per line; - is standard input");
            options.text("--npy", "FILE", o->npy,
                         "a NumPy array of rows or images; - is standard input");
            options.text("--text", "FILE", o->text,
                         "one row of text per line, plain or gzip; - is standard input");
            options.paths("--images", "FILE...", o->images,
                          "JPEG and PNG files, or folders of them; at most 3 MiB each");
          },
          [o](Session& session) { return run_predict(session, *o); }};
}

}  // namespace trainyard::cli
