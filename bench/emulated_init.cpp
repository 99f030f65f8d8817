// The first and only process of the emulated machine that bench/other_processors boots: runs /program once, sends what
// it prints to the second serial port as it is, says how it ended on the first one (the kernel's console, where its
// stderr goes too), and switches the machine off. Linked statically; nothing is mounted, nothing else is there.
#include <fcntl.h>
#include <sys/io.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace {

constexpr int kSerialMajor = 4, kSecondSerialMinor = 65;  // Linux's numbers for ttyS1
constexpr unsigned short kShutdownPort = 0x8900;          // Bochs switches off when it reads the word "Shutdown" here

// The second serial port, which changes no byte on its way; -1 if there is none.
int open_output() {
  mknod("/output", S_IFCHR | 0600, makedev(kSerialMajor, kSecondSerialMinor));
  const int output = open("/output", O_RDWR | O_NOCTTY);
  termios settings{};
  if (output < 0 || tcgetattr(output, &settings) != 0) return -1;
  cfmakeraw(&settings);
  cfsetspeed(&settings, B115200);
  return tcsetattr(output, TCSANOW, &settings) == 0 ? output : -1;
}

// The program's exit status, as a shell gives it: 128 and more for a signal.
int run_program(int output) {
  const pid_t child = fork();
  if (child == 0) {
    dup2(output, STDOUT_FILENO);
    char* const arguments[] = {const_cast<char*>("/program"), nullptr};
    execv(arguments[0], arguments);
    perror("/program");
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 126;
  tcdrain(output);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main() {
  const int output = open_output();
  if (output < 0) perror("the second serial port");
  std::printf("exit status %d\n", output < 0 ? 126 : run_program(output));
  std::fflush(stdout);
  tcdrain(STDOUT_FILENO);
  if (iopl(3) == 0) {
    for (const char letter : std::string_view("Shutdown")) outb(static_cast<unsigned char>(letter), kShutdownPort);
  }
  for (;;) pause();
}
