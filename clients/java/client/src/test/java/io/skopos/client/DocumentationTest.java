package io.skopos.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class DocumentationTest {
    @Test
    void the_java_of_the_page_on_programs_compiles(@TempDir Path folder) throws IOException {
        String page = Files.readString(Path.of("../../../docs/howto/read-from-a-program.md"));
        String begin = "```java\n";
        int at = page.indexOf(begin) + begin.length();
        String code = page.substring(at, page.indexOf("```", at));
        String imports = code.lines().filter(line -> line.startsWith("import ")).collect(Collectors.joining("\n"));
        String body = code.lines().filter(line -> !line.startsWith("import ")).collect(Collectors.joining("\n"));
        Path source = folder.resolve("Page.java");
        Files.writeString(source, imports + "\nclass Page {\nvoid run() {\n" + body + "\n}\n}\n");
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        int status = ToolProvider.getSystemJavaCompiler()
                .run(null, null, errors, "-cp", "target/classes", "-d", folder.toString(), source.toString());
        assertEquals(0, status, errors.toString(StandardCharsets.UTF_8));
    }
}
