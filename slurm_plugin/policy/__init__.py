"""What a site accepts at submission: rules of the site file, judged by the client and by job_submit.lua alike."""
