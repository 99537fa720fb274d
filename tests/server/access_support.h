// tests/server/access_support.h: a daemon with two projects, people in every role, and one object
// of each kind in both projects. Calls are made by name, with the request as text.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/impl/client_unary_call.h>
#include <sqlite3.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/sha256.h"
#include "tests/server/service_support.h"
#include "trainyard/v1/people_service.grpc.pb.h"

namespace trainyard::server {

inline const google::protobuf::MethodDescriptor* find_method(const std::string& name) {
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Dataset::descriptor()->file(),
        v1::Model::descriptor()->file(), v1::ServerInfo::descriptor()->file(),
        v1::Person::descriptor()->file()}) {
    const auto* method = file->service(0)->FindMethodByName(name);
    if (method != nullptr) return method;
  }
  return nullptr;
}

/// Returns a message of the type that the text describes.
inline std::unique_ptr<google::protobuf::Message> message_of(
    const google::protobuf::Descriptor& type, const std::string& text) {
  std::unique_ptr<google::protobuf::Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, message.get()))
      << type.full_name() << " { " << text << " }";
  return message;
}

/// Returns a SHA-256 of all rows of the store but those of the audit and the times of people's last
/// calls.
inline std::string digest_of_store(const std::filesystem::path& state_dir) {
  sqlite3* db = nullptr;
  EXPECT_EQ(
      sqlite3_open_v2((state_dir / "trainyard.db").c_str(), &db, SQLITE_OPEN_READONLY, nullptr),
      SQLITE_OK);
  Sha256 digest;
  const auto query = [&](const std::string& sql, const auto& row) {
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr), SQLITE_OK) << sql;
    while (sqlite3_step(statement) == SQLITE_ROW) row(statement);
    sqlite3_finalize(statement);
  };
  const auto bytes = [](sqlite3_stmt* statement, int column) {
    const void* const blob = sqlite3_column_blob(statement, column);
    const int size = sqlite3_column_bytes(statement, column);
    return std::string_view(static_cast<const char*>(blob), static_cast<size_t>(size));
  };
  query("BEGIN", [](sqlite3_stmt*) {});
  std::vector<std::string> tables;
  query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
        [&](sqlite3_stmt* s) { tables.emplace_back(bytes(s, 0)); });
  EXPECT_GT(tables.size(), 10U);
  for (const std::string& table : tables) {
    // The daemon measures its devices by itself when it is idle.
    if (table == "audit" || table == "device_rates") continue;
    digest.update(table);
    query("SELECT * FROM " + table, [&](sqlite3_stmt* s) {
      for (int i = 0; i < sqlite3_column_count(s); ++i) {
        if (std::string_view(sqlite3_column_name(s, i)).starts_with("last_")) continue;
        digest.update(std::to_string(sqlite3_column_type(s, i)) + ":");
        digest.update(bytes(s, i));
      }
    });
  }
  sqlite3_close_v2(db);
  return digest.finish();
}

/// A job's spec as text; $P is the project of its dataset.
inline constexpr const char* kSpec =
    "spec { dataset { name: 'projects/$P/datasets/iris' } model { mlp { hidden: 8 } } "
    "recipe { epochs: 2 batch_size: 10 optimizer { learning_rate: 0.1 } } }";

/// Returns the text with `by` in each place of `mark`.
inline std::string replaced(std::string text, const std::string& mark, const std::string& by) {
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += by.size()) {
    text.replace(at, mark.size(), by);
  }
  return text;
}

/// A safetensors file with a tensor of an MLP for the rows of ServiceAccessTest::make_objects().
inline std::string weights_file() {
  const std::string header =
      R"({"fc1.weight":{"dtype":"F32","shape":[8,4],"data_offsets":[0,128]}})";
  return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header +
         std::string(128, '\0');
}

class ServiceAccessTest : public ServiceTest {
 protected:
  /// A caller: the token that is sent, and the person for whom a service acts.
  struct Caller {
    std::string token = {};
    std::string acting_for = {};
  };
  /// What a call gave.
  struct Reply {
    grpc::Status status;
    std::vector<grpc::ByteBuffer> messages = {};
    /// Returns "OK" or the error's reason.
    std::string reason() const { return status.ok() ? "OK" : reason_of(status); }
  };

  void SetUp() override {
    config_.listen = "127.0.0.1:0";
    ServiceTest::SetUp();
    people_ = v1::PeopleService::NewStub(channel_);
    tcp_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(daemon_->port()),
                               grpc::InsecureChannelCredentials());
    make_people();
    must(nullptr, "DrainDevice", "name: 'devices/cpu'");  // no job starts by itself
    for (const char* project : {"vision", "secret"}) make_objects(project);
    set_member("secret", "owner", "NONE");
  }

  /// Makes a call as this person; null: over the Unix socket, as the daemon's user.
  Reply call(const Caller* caller, const std::string& method, const std::string& request) {
    const google::protobuf::MethodDescriptor* const described = find_method(method);
    EXPECT_NE(described, nullptr) << method;
    return call(caller, *described, *message_of(*described->input_type(), request));
  }
  Reply call(const Caller* caller, const google::protobuf::MethodDescriptor& method,
             const google::protobuf::Message& request) {
    using Type = grpc::internal::RpcMethod;
    const std::string path = "/" + method.service()->full_name() + "/" + method.name();
    const std::unique_ptr<grpc::ClientContext> c = context_of(caller);
    const std::shared_ptr<grpc::Channel>& channel = caller == nullptr ? channel_ : tcp_;
    const grpc::Slice slice(request.SerializeAsString());
    const grpc::ByteBuffer bytes(&slice, 1);
    Reply reply;
    grpc::ByteBuffer message;
    if (method.server_streaming()) {
      const Type type(path.c_str(), Type::SERVER_STREAMING);
      const std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> stream(
          grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(channel.get(), type,
                                                                        c.get(), bytes));
      while (stream->Read(&message)) reply.messages.push_back(message);
      reply.status = stream->Finish();
      return reply;
    }
    if (method.client_streaming()) {
      const Type type(path.c_str(), Type::CLIENT_STREAMING);
      const std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>> stream(
          grpc::internal::ClientWriterFactory<grpc::ByteBuffer>::Create(channel.get(), type,
                                                                        c.get(), &message));
      stream->Write(bytes);
      stream->WritesDone();
      reply.status = stream->Finish();
    } else {
      const Type type(path.c_str(), Type::NORMAL_RPC);
      reply.status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
          channel.get(), type, c.get(), bytes, &message);
    }
    if (reply.status.ok()) reply.messages.push_back(message);
    return reply;
  }
  /// Makes a call that must succeed.
  Reply must(const Caller* caller, const std::string& method, const std::string& request) {
    Reply reply = call(caller, method, request);
    EXPECT_TRUE(reply.status.ok()) << method << " " << request << ": " << reply.reason() << " "
                                   << reply.status.error_message();
    return reply;
  }

  static std::unique_ptr<grpc::ClientContext> context_of(const Caller* caller) {
    auto c = context();
    if (caller == nullptr) return c;
    c->AddMetadata("authorization", "Bearer " + caller->token);
    if (!caller->acting_for.empty()) c->AddMetadata("trainyard-acting-for", caller->acting_for);
    return c;
  }

  /// Creates a token for the person and returns its text.
  v1::CreateTokenResponse make_token(const std::string& person,
                                     const std::string& may_act_for = "") {
    v1::CreateTokenRequest request;
    request.set_person(person);
    request.set_name("test" + std::to_string(++tokens_));
    if (!may_act_for.empty()) request.add_may_act_for(may_act_for);
    v1::CreateTokenResponse response;
    const grpc::Status s = people_->CreateToken(context().get(), request, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return response;
  }
  void set_member(const std::string& project, const std::string& person, const std::string& role) {
    must(nullptr, "SetMember",
         "parent: 'projects/" + project + "' person: '" + person + "' role: " + role);
  }
  const Caller* as(const std::string& name) const { return &callers_.at(name); }

  /// Uploads the content into the project and returns its digest.
  std::string upload_to(const std::string& project, const std::string& content) {
    const auto c = context_of(as("owner"));
    v1::Upload up;
    const auto stub = v1::DatasetService::NewStub(tcp_);
    const auto stream = stub->UploadFile(c.get(), &up);
    v1::UploadFileRequest request;
    request.mutable_start()->set_parent("projects/" + project);
    request.mutable_start()->set_sha256(sha256_hex(content));
    request.mutable_start()->set_size_bytes(static_cast<int64_t>(content.size()));
    stream->Write(request);
    for (size_t at = 0; at < content.size(); at += kChunkBytes) {
      const std::string part = content.substr(at, kChunkBytes);
      request.mutable_chunk()->set_offset(static_cast<int64_t>(at));
      request.mutable_chunk()->set_data(part);
      request.mutable_chunk()->set_crc32c(crc32c(part));
      stream->Write(request);
    }
    request.mutable_finish();
    stream->Write(request);
    stream->WritesDone();
    const grpc::Status s = stream->Finish();
    EXPECT_TRUE(s.ok()) << s.error_message();
    return sha256_hex(content);
  }

  /// Creates the objects that the cases name: datasets, a model, jobs and arrays.
  void make_objects(const std::string& project) {
    if (project == "secret") set_member("secret", "owner", "MEMBER");
    const Caller* const owner = as("owner");
    std::string rows = "a,b,c,d,species\n";
    for (int i = 0; i < 120; ++i) {
      rows += std::to_string(i) + ".5,1.25," + std::to_string(i % 7) + ".0,2," +
              std::string(1, static_cast<char>('x' + i % 3)) + "\n";
    }
    const std::string parent = "parent: 'projects/" + project + "' ";
    const std::string data = upload_to(project, rows);
    for (const char* id : {"iris", "shared"}) {
      must(owner, "CreateDataset",
           parent + "dataset_id: '" + id + "' spec { sources { role: DATA sha256: '" + data +
               "' } csv { target: 'species' } }");
      const std::string name = "name: 'projects/" + project + "/datasets/" + id + "'";
      ASSERT_TRUE(eventually([&] {
        v1::Dataset dataset;
        const Reply reply = must(owner, "GetDataset", name);
        return parsed(reply, dataset).state() == v1::Dataset::READY;
      }));
    }
    const std::string weights = upload_to(project, weights_file());
    for (const char* id : {"base", "shared"}) {
      must(owner, "CreateModel", parent + "model_id: '" + id + "' sha256: '" + weights + "'");
    }
    const std::string spec = replaced(replaced(kSpec, "$P", project), "recipe {",
                                      "recipe { initial_weights { model: 'base' partial: true } ");
    const std::string members =
        " array { list { values { key: 'recipe.seed' value: '1' } } "
        "list { values { key: 'recipe.seed' value: '2' } } }";
    for (const auto& [id, end] : {std::pair("ended", "Cancel"), std::pair("paused", "Pause")}) {
      must(owner, "SubmitJob", parent + "job_id: '" + id + "' " + spec);
      must(owner, std::string(end) + "Job", "name: 'projects/" + project + "/jobs/" + id + "'");
    }
    for (const auto& [id, end] : {std::pair("swept", "Cancel"), std::pair("sweep", "Pause")}) {
      must(owner, "SubmitArray", parent + "array_id: '" + id + "' " + spec + members);
      must(owner, std::string(end) + "Array", "name: 'projects/" + project + "/arrays/" + id + "'");
    }
  }

  /// Returns the number of uploads that the audit knows.
  int64_t count_uploads() {
    v1::ListAuditResponse response;
    parsed(must(nullptr, "ListAudit", "action: 'UploadFile' page_size: 1000"), response);
    return response.entries_size();
  }

  template <typename M>
  static const M& parsed(const Reply& reply, M& message) {
    std::vector<grpc::Slice> slices;
    if (reply.messages.size() != 1 || !reply.messages[0].Dump(&slices).ok()) return message;
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    EXPECT_TRUE(message.ParseFromString(bytes));
    return message;
  }

  std::unique_ptr<v1::PeopleService::Stub> people_;
  std::shared_ptr<grpc::Channel> tcp_;
  std::map<std::string, Caller> callers_;
  int tokens_ = 0;

 private:
  void make_people() {
    must(nullptr, "CreateProject", "project_id: 'vision'");
    must(nullptr, "CreateProject", "project_id: 'secret'");
    must(nullptr, "SetPerson", "name: 'stranger'");
    must(nullptr, "SetPerson", "name: 'operator' server_role: OPERATOR");
    must(nullptr, "SetPerson", "name: 'admin' server_role: ADMIN");
    must(nullptr, "SetPerson", "name: 'ci' service: true");
    set_member("vision", "viewer", "VIEWER");
    set_member("vision", "member", "MEMBER");
    set_member("vision", "owner", "MEMBER");
    set_member("vision", "maintainer", "MAINTAINER");
    set_member("secret", "other", "MEMBER");
    for (const char* person :
         {"stranger", "viewer", "member", "owner", "maintainer", "operator", "admin", "other"}) {
      callers_[person].token = make_token(person).text();
    }
    callers_["service"] = {make_token("ci", "owner").text(), "owner"};
  }
};

}  // namespace trainyard::server
