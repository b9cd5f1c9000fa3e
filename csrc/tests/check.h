// A test is TEST(name) { ... }; each file is a program that runs all its tests, or those named on the command
// line. A failed check is printed and counted, and the test goes on, so checks may be made from any thread.
#pragma once

#include <atomic>
#include <iostream>
#include <ranges>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace check {

inline std::vector<std::pair<std::string, void (*)()>> tests;
inline std::atomic<int> failures{0};

inline bool add(const char* name, void (*body)()) { return tests.emplace_back(name, body), true; }

inline void fail(const char* file, int line, const std::string& what) {
  if (++failures > 20) return;  // a broken loop says the same a thousand times
  std::cerr << std::string(file) + ":" + std::to_string(line) + ": " + what + "\n";
}

template <class T>
std::string show(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else if constexpr (requires { out << value; }) {
    out << std::boolalpha << value;
  } else if constexpr (std::ranges::range<T>) {
    for (const auto& element : value) out << show(element) << " ";
  } else {
    out << "<" << sizeof(T) << " bytes>";
  }
  return out.str();
}

template <class A, class B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
  bool same;
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    same = std::cmp_equal(a + 0, b + 0);  // size() == 3 is no mistake; + 0 because bool and char are refused
  } else {
    same = a == b;
  }
  if (!same) fail(file, line, std::string(text) + "\n    left:  " + show(a) + "\n    right: " + show(b));
}

template <class F>
void throws(F statement, const char* text, const char* file, int line, const std::string& part = "") try {
  statement();
  fail(file, line, std::string(text) + " did not throw");
} catch (const std::exception& error) {
  if (std::string(error.what()).find(part) == std::string::npos)
    fail(file, line, std::string(text) + "\n    threw:      " + error.what() + "\n    instead of: " + part);
}

}  // namespace check

#define TEST(name)                                                                  \
  static void test_##name();                                                        \
  static const bool added_##name [[maybe_unused]] = check::add(#name, test_##name); \
  static void test_##name()
#define CHECK(...) ((__VA_ARGS__) ? void() : check::fail(__FILE__, __LINE__, "CHECK(" #__VA_ARGS__ ")"))
#define CHECK_EQ(a, ...) check::equal((a), (__VA_ARGS__), #a " == " #__VA_ARGS__, __FILE__, __LINE__)
// CHECK_THROWS(expression) or CHECK_THROWS(expression, "what its message must contain")
#define CHECK_THROWS(expression, ...) \
  check::throws([&] { (void)(expression); }, #expression, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__)

int main(int argc, char** argv) {
  int ran = 0, broken = 0;
  for (const auto& [name, body] : check::tests) {
    if (argc > 1 && name != argv[1]) continue;
    check::failures = 0, ++ran;
    try {
      body();
    } catch (const std::exception& error) {
      check::fail(name.c_str(), 0, std::string("threw ") + error.what());
    }
    broken += check::failures > 0;
    std::cout << (check::failures ? "FAILED " : "ok     ") << name << std::endl;
  }
  std::cout << ran - broken << " of " << ran << " tests passed" << std::endl;
  return broken > 0 || ran == 0;
}
